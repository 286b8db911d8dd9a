//! Computes a line from an indicator of cold caches to their cost, through measured points.

use speed_bump_abi::{ColdSegment, Coldness};

/// The number of measured groups of calls. The first group is warm, and each should be colder than the one
/// before.
pub(super) const GROUPS: usize = Coldness::SEGMENTS + 1;
/// The greatest factor that we accept.
pub(super) const MAX_FACTOR: u32 = 24 * Coldness::ONE;

/// The times in one group of calls, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// The indicator: the time that the program's look-ups take.
    pub told: u64,
    /// The rest of a call's time: without the part that the program measures itself.
    pub rest: u64,
}

/// The line through the groups. Leaves out a group that is not colder than the groups before it.
pub(super) fn line(groups: [Group; GROUPS]) -> Coldness {
    let [warm, colder @ ..] = groups;
    let mut coldness =
        Coldness { warm_ns: u32::try_from(warm.told).unwrap_or(u32::MAX), ..Coldness::default() };
    let mut last = warm;
    for (segment, group) in coldness.segments.iter_mut().zip(colder) {
        if group.told <= last.told || group.rest <= last.rest {
            continue;
        }
        let length = group.told - last.told;
        let factor = ((group.rest - last.rest).saturating_mul(u64::from(Coldness::ONE)) / length)
            .min(u64::from(MAX_FACTOR));
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

    fn groups(pairs: [(u64, u64); GROUPS]) -> [Group; GROUPS] {
        pairs.map(|(told, rest)| Group { told, rest })
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
        assert_eq!(line(groups([(80, 1_000); GROUPS])).more_ns(5_000), 0);
    }

    #[test]
    fn the_correction_is_bounded_whatever_was_measured() {
        let wild = line(groups([(0, 0), (1, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, u64::MAX)]));
        assert_eq!(wild.more_ns(u64::MAX), u64::from(MAX_FACTOR / Coldness::ONE));
    }
}
