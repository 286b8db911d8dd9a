//! What a trap costs more when it finds the caches cold: after its thread slept, or ran much other code.
//!
//! On this machine a trap after 5 ms of sleep takes seven times as long as a warm one, and what the caller loses is
//! to be the same. The BPF program cannot see when the trap began, but its own look-ups slow down in proportion (the
//! correlation over calls after pauses of 0 to 5 ms is 0.93 to 0.96), so the factor between the two is measured.

use std::{
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::{ColdSegment, Coldness, SiteArguments};

use super::{Bench, CalibrateError, stubs::Stub, touch};
use crate::{probe::site::SiteKind, units::Nanos};

/// The stub that is measured: of an everyday kind.
const KIND: SiteKind = SiteKind::Push;
/// How long the thread sleeps before each call of a group, and how many calls the group has. The first touches memory
/// only, as in the calibration of warm traps. The longest finds most of it evicted, and start-up stays fast.
const GROUPS: [(Duration, u64); Coldness::SEGMENTS + 1] = [
    (Duration::ZERO, 96),
    (Duration::from_micros(80), 96),
    (Duration::from_micros(500), 64),
    (Duration::from_millis(4), 20),
];
/// Look-ups that take longer were interrupted, and count for no more than this.
const LONGEST_LOOKUPS_NS: u64 = 1_000;
/// The greatest factor that is believed.
const MOST: u64 = 24 * Coldness::ONE as u64;

/// What calls after one pause took, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    /// The program's look-ups, on average.
    lookups: u64,
    /// The call but for that, in the median.
    rest: u64,
}

impl Bench {
    /// Measures the machine's [`Coldness`]. The stubs' functions have target 0.
    pub(super) fn coldness(&mut self) -> Result<Coldness, CalibrateError> {
        let found = (0_u32..).zip(&self.stubs).find(|(_, stub)| stub.kind == KIND);
        let Some((site, stub)) = found.map(|(site, stub)| (site, *stub)) else {
            return Ok(Coldness::default());
        };
        // So that nothing is left to spin, and what the look-ups took is what is reported as delivered.
        self.engine.set_policy(0, Nanos(1), 1)?;
        let mut identity = Coldness::default();
        if let Some(segment) = identity.segments.first_mut() {
            *segment = ColdSegment { length_ns: LONGEST_LOOKUPS_NS as u32, factor: Coldness::ONE };
        }
        self.engine.set_coldness(identity)?;
        self.engine.set_site(site, SiteArguments { function: site, ..SiteArguments::default() })?;
        let mut groups = [Group { lookups: 0, rest: 0 }; GROUPS.len()];
        for (group, (pause, calls)) in groups.iter_mut().zip(GROUPS) {
            *group = self.group(site, stub, pause, calls)?;
        }
        Ok(line(groups))
    }

    /// The counters are read only before and after: reading them between two calls would warm what the next one finds.
    fn group(&self, site: u32, stub: Stub, pause: Duration, calls: u64) -> Result<Group, CalibrateError> {
        let mut working_set = Vec::new();
        let mut taken = Vec::new();
        let before = self.engine.stats(site)?.delivered_ns;
        for _ in 0..calls {
            touch(&mut working_set);
            if !pause.is_zero() {
                thread::sleep(pause);
            }
            // The clock is warm when it counts: a caller without the tool would find it cold as well.
            std::hint::black_box(Instant::now());
            let start = Instant::now();
            stub.call();
            taken.push(Nanos::from(start.elapsed()).0);
        }
        let lookups = self.engine.stats(site)?.delivered_ns.saturating_sub(before) / calls;
        taken.sort_unstable();
        let median = taken.get(taken.len() / 2).copied().unwrap_or_default();
        Ok(Group { lookups, rest: median.saturating_sub(lookups) })
    }
}

/// The line through the groups, as far as each is colder than the one before.
fn line(groups: [Group; GROUPS.len()]) -> Coldness {
    let [warm, colder @ ..] = groups;
    let mut coldness =
        Coldness { warm_ns: u32::try_from(warm.lookups).unwrap_or(u32::MAX), ..Coldness::default() };
    let mut last = warm;
    for (segment, group) in coldness.segments.iter_mut().zip(colder) {
        if group.lookups <= last.lookups || group.rest <= last.rest {
            continue;
        }
        let length = group.lookups - last.lookups;
        let factor = ((group.rest - last.rest).saturating_mul(u64::from(Coldness::ONE)) / length).min(MOST);
        *segment = ColdSegment {
            length_ns: u32::try_from(length).unwrap_or(u32::MAX),
            factor: u32::try_from(factor).unwrap_or(u32::MAX),
        };
        last = group;
    }
    coldness
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pairs: [(u64, u64); GROUPS.len()]) -> [Group; GROUPS.len()] {
        pairs.map(|(lookups, rest)| Group { lookups, rest })
    }

    #[test]
    fn the_line_goes_through_the_groups() {
        let measured = line(groups([(80, 1_000), (100, 1_400), (200, 2_400), (400, 3_400)]));
        for (took, more) in [(0, 0), (80, 0), (90, 200), (100, 400), (150, 900), (400, 2_400), (9_000, 2_400)]
        {
            assert_eq!(measured.more_ns(took), more, "{took}");
        }
    }

    #[test]
    fn a_group_that_is_no_colder_is_passed_over() {
        let measured = line(groups([(80, 1_000), (79, 1_400), (90, 900), (180, 2_000)]));
        assert_eq!(measured.more_ns(180), 1_000);
        assert_eq!(measured.more_ns(130), 500);
        assert_eq!(line(groups([(80, 1_000); GROUPS.len()])).more_ns(5_000), 0);
    }

    #[test]
    fn the_correction_is_bounded_whatever_was_measured() {
        let wild = line(groups([(0, 0), (1, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, u64::MAX)]));
        assert_eq!(wild.more_ns(u64::MAX), MOST / u64::from(Coldness::ONE));
    }
}
