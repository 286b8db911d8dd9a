//! By how much the way in takes longer with cold caches: after the thread slept, or ran much other code.
//!
//! On this machine a trap after 5 ms of sleep takes seven times as long as a warm one, and the caller is to
//! lose the same time in both cases. The BPF program cannot see when the trap began, but its own look-ups
//! slow down in proportion (the correlation over calls after pauses of 0 to 5 ms is 0.93 to 0.96). So we
//! measure the factor between the two.

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

/// How long the thread sleeps before each call of a group, and how many calls the group has. In the first, it
/// touches memory only, as in the calibration of warm traps. The longest sleep finds most of the caches
/// evicted, and still allows a fast start.
const PAUSES: [(Duration, u64); GROUPS] = [
    (Duration::ZERO, 96),
    (Duration::from_micros(80), 96),
    (Duration::from_micros(500), 64),
    (Duration::from_millis(4), 20),
];
/// Look-ups that take longer were interrupted, and count as this long.
const LONGEST_LOOKUPS_NS: u64 = 1_000;

impl Bench {
    /// Measures the way in. The stubs' functions have the only policy.
    pub(super) fn way_in(&mut self) -> Result<Coldness, CalibrateError> {
        let Some((site, stub, _)) = self.everyday() else { return Ok(Coldness::default()) };
        // Nothing is left to spin then, and the time of the look-ups is what is reported as delivered.
        self.set_policy(spun(Nanos(1)))?;
        let mut identity = Coldness::default();
        if let Some(segment) = identity.segments.first_mut() {
            *segment = ColdSegment { length_ns: LONGEST_LOOKUPS_NS as u32, factor: Coldness::ONE };
        }
        self.engine.set_coldness([identity, Coldness::default()])?;
        self.engine.set_site(site, SiteArguments { function: site, ..SiteArguments::default() })?;
        let mut groups = [Group::default(); GROUPS];
        // The warm group last: the next measurement then finds the machine in the same state, which changes
        // within seconds.
        for (group, (pause, calls)) in groups.iter_mut().zip(PAUSES).rev() {
            *group = self.group(site, stub, pause, calls)?;
        }
        tracing::debug!("way in: {groups:?}");
        Ok(line(groups))
    }

    /// Reads the counters only before and after: reading them between two calls would warm caches for the
    /// next one.
    fn group(&self, site: u32, stub: Stub, pause: Duration, calls: u64) -> Result<Group, CalibrateError> {
        let mut working_set = Vec::new();
        let mut taken = Vec::new();
        let before = self.stats(site)?.delivered_ns;
        for _ in 0..calls {
            touch(&mut working_set);
            if !pause.is_zero() {
                thread::sleep(pause);
            }
            // The clock is warm when it is read: it would be cold for a caller without the tool, too.
            std::hint::black_box(Instant::now());
            taken.push(timed(stub));
        }
        let lookups = self.stats(site)?.delivered_ns.saturating_sub(before) / calls;
        Ok(Group { told: lookups, rest: median(&mut taken).saturating_sub(lookups) })
    }
}
