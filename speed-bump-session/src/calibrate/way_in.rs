//! Measures how much longer the way in takes with cold caches: after the thread slept, or executed much other
//! code.
//!
//! On this machine a trap after 5 ms of sleep takes seven times as long as a warm one, but the caller should
//! lose the same time in both cases. The BPF program cannot see when the trap began. But its own look-ups
//! become slower in proportion (over calls after pauses of 0 to 5 ms, the correlation is 0.93 to 0.96). So we
//! measure by what factor the look-ups and the way in differ.

use std::{
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::{ColdSegment, Coldness, SiteArguments};

use super::{
    Bench, CalibrateError,
    line::{GROUPS, Group, line},
    median, spun,
    stubs::Stub,
    timed, touch,
};
use crate::units::Nanos;

/// How long the thread sleeps before each call of a group, and how many calls the group has. In the first
/// group the thread only touches memory, as when we measure warm traps. After the longest sleep, most cached
/// data is gone, and the start is still fast.
const PAUSES: [(Duration, u64); GROUPS] = [
    (Duration::ZERO, 96),
    (Duration::from_micros(80), 96),
    (Duration::from_micros(500), 64),
    (Duration::from_millis(4), 20),
];
/// If look-ups take longer than this, something interrupted them. Then we use this time.
const LONGEST_LOOKUPS_NS: u64 = 1_000;

impl Bench {
    /// Measures the way in. All stubs have the same policy.
    pub(super) fn way_in(&mut self) -> Result<Coldness, CalibrateError> {
        let Some((site, stub, _)) = self.everyday() else { return Ok(Coldness::default()) };
        // With this delay nothing is left to spin, and the delivered time is the time of the look-ups.
        self.set_policy(spun(Nanos(1)))?;
        let mut identity = Coldness::default();
        if let Some(segment) = identity.segments.first_mut() {
            *segment = ColdSegment { length_ns: LONGEST_LOOKUPS_NS as u32, factor: Coldness::ONE };
        }
        self.engine.set_coldness([identity, Coldness::default()])?;
        self.engine.set_site(site, SiteArguments { function: site, ..SiteArguments::default() })?;
        let mut groups = [Group::default(); GROUPS];
        // We measure the warm group last. The state of the machine changes within seconds, and the next
        // measurement should find the machine in the same state.
        for (group, (pause, calls)) in groups.iter_mut().zip(PAUSES).rev() {
            *group = self.group(site, stub, pause, calls)?;
        }
        tracing::debug!("way in: {groups:?}");
        Ok(line(groups))
    }

    /// Reads the counters only before and after all calls. If we read them between two calls, we would warm
    /// caches for the second call.
    fn group(&self, site: u32, stub: Stub, pause: Duration, calls: u64) -> Result<Group, CalibrateError> {
        let mut working_set = Vec::new();
        let mut taken = Vec::new();
        let before = self.stats(site)?.delivered_ns;
        for _ in 0..calls {
            touch(&mut working_set);
            if !pause.is_zero() {
                thread::sleep(pause);
            }
            // We read the clock once before the call. Without the tool, the caller would find the code of the
            // clock cold, too. So reading the clock cold is not part of the cost.
            std::hint::black_box(Instant::now());
            taken.push(timed(stub));
        }
        let lookups = self.stats(site)?.delivered_ns.saturating_sub(before) / calls;
        Ok(Group { told: lookups, rest: median(&mut taken).saturating_sub(lookups) })
    }
}
