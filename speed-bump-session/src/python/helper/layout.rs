//! The layout of a control block.

use std::mem::size_of;

use speed_bump_abi::{
    Policy,
    callers::CallerRow,
    control_block::{Branch, Calls, ControlBlock, DelayCounts, FunctionRecord, Turns},
    times::TimeRow,
};

use super::block::InPlace;

/// Everything in the block starts at a multiple of this many bytes.
const ALIGNMENT: u64 = 64;
/// The smallest room for a selector in bytes. A later selector may be longer than the first one.
const SELECTOR_ROOM: u64 = 64 << 10;
/// Room for names per function, in bytes: for the file and the qualified name. Functions of one file share
/// the file's name.
const NAMES_ROOM: u64 = 512;
/// Pairs of a caller and a function, per function.
const CALLERS: u32 = 4;

/// The number of functions that a block has room for. Unused room takes no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The most functions that targets select.
    pub functions: u32,
}

impl Room {
    /// Room for a process that the user named, if the helper counts calls.
    pub const NAMED: Self = Self { functions: 65_536 };
    /// Room for a process that the user named, if BPF programs count calls. BPF programs have counters for
    /// each processor.
    pub const NAMED_OF_PROGRAMS: Self = Self { functions: 16_384 };
    /// Room for a child process.
    pub const CHILD: Self = Self { functions: 4_096 };
    /// Room for a child process if memory is short.
    pub const SMALL: Self = Self { functions: 1_024 };
    /// The smallest room.
    pub const MIN: Self = Self { functions: 256 };

    /// The largest room up to this one whose block fits; otherwise the smallest room.
    pub fn that_fits(self, fits: impl Fn(Self) -> bool) -> Self {
        let smaller = [Self::NAMED_OF_PROGRAMS, Self::CHILD, Self::SMALL, Self::MIN];
        let smaller = smaller.into_iter().filter(|room| room.functions < self.functions);
        let least = Self { functions: self.functions.min(Self::MIN.functions) };
        [self].into_iter().chain(smaller).find(|room| fits(*room)).unwrap_or(least)
    }
}

/// Offsets from the start of the block, and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Two places for selectors: the helper may still read one selector while we write the other one.
    pub selectors: [u64; 2],
    /// The size of each place in bytes.
    pub selector_room: u64,
    /// The offset of the functions' records.
    pub functions: u64,
    /// How many records there is room for.
    pub functions_capacity: u32,
    /// The branches, one for each record. A function whose targets apply to all callers uses no memory here.
    pub branches: u64,
    /// The offset of the index.
    pub index: u64,
    /// The number of slots of the index, a power of two.
    pub index_slots: u32,
    /// The offset of the names.
    pub names: u64,
    /// The room for names in bytes.
    pub names_capacity: u64,
    /// The helper's counters for each function.
    pub calls: u64,
    /// The histograms of delays, one for each function. A function without delays uses no memory here.
    pub histograms: u64,
    /// The rows of policies.
    pub policies: u64,
    /// The counters for `frequency`, one for each policy.
    pub counters: u64,
    /// The times of functions; 0 if the helper does not time calls.
    pub times: u64,
    /// The pairs of callers and functions; 0 if the helper does not record callers.
    pub callers: u64,
    /// The number of pairs, a power of two.
    pub callers_capacity: u32,
    /// The size of the whole block.
    pub size: u64,
}

impl Layout {
    /// A layout for this room, and for two selectors. The first selector has `selector` bytes. With
    /// `in_place`, the layout also has room for the counters and policies of a helper that delays by itself.
    pub fn new(room: Room, selector: usize, in_place: Option<&InPlace>) -> Self {
        let functions_capacity = room.functions.max(1);
        let index_slots = functions_capacity.saturating_mul(2).next_power_of_two();
        let selector_room = aligned((selector as u64).saturating_mul(2).max(SELECTOR_ROOM));
        let mut end = aligned(size_of::<ControlBlock>() as u64);
        let mut place = |bytes: u64| {
            let start = end;
            end = aligned(end.saturating_add(bytes));
            start
        };
        let selectors = [place(selector_room), place(selector_room)];
        let functions = place(u64::from(functions_capacity) * size_of::<FunctionRecord>() as u64);
        let branches = place(u64::from(functions_capacity) * size_of::<Branch>() as u64);
        let index = place(u64::from(index_slots) * 4);
        let names_capacity = u64::from(functions_capacity) * NAMES_ROOM;
        let names = place(names_capacity);
        let policy_count = u64::from(in_place.map_or(0, |of| of.policies));
        let calls_count = if in_place.is_some() { u64::from(functions_capacity) } else { 0 };
        let calls = place(calls_count * size_of::<Calls>() as u64);
        let histograms = place(calls_count * size_of::<DelayCounts>() as u64);
        let row = Policy::WORDS * size_of::<u64>();
        let policies = place(policy_count * (Policy::ROWS as usize * row) as u64);
        let counters = place(policy_count * size_of::<Turns>() as u64);
        let is_timed = in_place.is_some_and(|of| of.times);
        let times = if is_timed { place(calls_count * size_of::<TimeRow>() as u64) } else { 0 };
        let has_callers = is_timed && in_place.is_some_and(|of| of.callers);
        let callers_capacity =
            if has_callers { functions_capacity.saturating_mul(CALLERS).next_power_of_two() } else { 0 };
        let callers_bytes = u64::from(callers_capacity) * size_of::<CallerRow>() as u64;
        let callers = if has_callers { place(callers_bytes) } else { 0 };
        Self {
            selectors,
            selector_room,
            functions,
            functions_capacity,
            branches,
            index,
            index_slots,
            names,
            names_capacity,
            calls,
            histograms,
            policies,
            counters,
            times,
            callers,
            callers_capacity,
            size: end.next_multiple_of(4096),
        }
    }
}

fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use speed_bump_abi::{Histogram, control_block::LARGEST_BLOCK};

    use super::*;
    use crate::python::helper::HelperClock;

    #[test]
    fn rooms_get_smaller_until_one_fits() {
        let of = |room: Room, most: u32| room.that_fits(|room| room.functions <= most).functions;
        assert_eq!(of(Room::NAMED, u32::MAX), 65_536);
        assert_eq!(
            [20_000, 16_384, 5_000, 1_024, 300, 0].map(|most| of(Room::NAMED, most)),
            [16_384, 16_384, 4_096, 1_024, 256, 256]
        );
        assert_eq!((of(Room::SMALL, 5_000), of(Room { functions: 1 }, 0)), (1_024, 1));
    }

    fn in_place(policies: u32, times: bool, callers: bool) -> InPlace {
        InPlace { clock: HelperClock::MONOTONIC, policies, children: true, times, timing: 0, callers }
    }

    #[test]
    fn nothing_overlaps_and_everything_is_inside() {
        for (functions, selector, policies) in
            [(1, 0, None), (4_096, 100, Some(7)), (16_384, 5 << 20, Some(100_000))]
        {
            let layout = Layout::new(
                Room { functions },
                selector,
                policies.map(|of| in_place(of, true, true)).as_ref(),
            );
            let policy_count = u64::from(policies.unwrap_or(0));
            let parts = [
                (0, size_of::<ControlBlock>() as u64),
                (layout.selectors[0], layout.selector_room),
                (layout.selectors[1], layout.selector_room),
                (layout.functions, u64::from(layout.functions_capacity) * 32),
                (layout.branches, u64::from(layout.functions_capacity) * 8),
                (layout.index, u64::from(layout.index_slots) * 4),
                (layout.names, layout.names_capacity),
                (layout.calls, policies.map_or(0, |_| u64::from(layout.functions_capacity) * 64)),
                (
                    layout.histograms,
                    policies
                        .map_or(0, |_| u64::from(layout.functions_capacity) * (Histogram::WORDS * 8) as u64),
                ),
                (layout.policies, policy_count * 64),
                (layout.counters, policy_count * 16),
                (
                    policies.map_or(layout.size, |_| layout.times),
                    policies.map_or(0, |_| u64::from(functions) * 64),
                ),
                (
                    policies.map_or(layout.size, |_| layout.callers),
                    policies.map_or(0, |_| u64::from(layout.callers_capacity) * 64),
                ),
                (layout.size, 0),
            ];
            for pair in parts.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{layout:?}");
                assert_eq!(pair[1].0 % ALIGNMENT, 0);
            }
            assert!(layout.index_slots.is_power_of_two() && layout.index_slots >= 2 * functions);
            assert!(layout.selector_room >= selector as u64);
            // Offsets of names must fit into a `u32`.
            assert!(u32::try_from(layout.names_capacity).is_ok());
        }
        let named = Layout::new(Room::NAMED, 1 << 20, Some(&in_place(10_000, true, true)));
        assert!(named.size <= LARGEST_BLOCK as u64, "{}", named.size);
        let layout = |times, callers| {
            let layout = Layout::new(Room { functions: 1 }, 0, Some(&in_place(1, times, callers)));
            (layout.times > 0, layout.callers > 0, layout.callers_capacity)
        };
        assert_eq!(layout(false, true), (false, false, 0));
        assert_eq!([layout(true, false), layout(true, true)], [(true, false, 0), (true, true, 4)]);
    }
}
