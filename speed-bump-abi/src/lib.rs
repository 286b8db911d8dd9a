//! What the loader and the BPF programs share, defined once.
//!
//! Every record is `#[repr(C)]`, has no implicit padding and is valid for any bit pattern, so that the
//! loader can write it into a BPF map and the kernel side can read it in place. The layout tests at the
//! bottom pin sizes and offsets: a change there is a change of the checked-in BPF object.
//!
//! Times are nanoseconds of `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`), indices are positions in the map that
//! the name says.

#![no_std]

pub mod bound;
// BPF has no atomics of 8 and 32 bits, and never sees the block.
#[cfg(not(target_arch = "bpf"))]
pub mod callers;
pub mod calls;
#[cfg(not(target_arch = "bpf"))]
pub mod control_block;
pub mod event;
pub mod function;
pub mod gap;
pub mod histogram;
pub mod log;
pub mod maps;
pub mod native_callers;
pub mod policy;
pub mod requests;
pub mod site;
pub mod times;

pub use bound::{Bound, Bucket};
pub use calls::{CALLS_DEPTH, CallStack, TimedCall, Turn, Turns};
pub use event::{Event, EventKind, PythonCodeEvent};
pub use function::{FunctionEntry, FunctionStats, NO_FUNCTION, NO_POLICY, PythonKey, TrampolineKey, Verdict};
pub use gap::Gaps;
pub use histogram::Histogram;
pub use log::{NotDelayed, RateLimit};
pub use native_callers::{CallerLine, CallerLineSets, CallerLines, CallerRange, CallerSpan};
pub use policy::{ColdSegment, Coldness, Control, Handshake, Policy, Telltale};
pub use requests::{Latencies, Requests, UnixName};
pub use site::{ArgumentSpec, Condition, Cookie, SiteArguments, from_stub_target, stub_target};

/// The folder of this crate's `lib.rs`, for the build script that compiles the helper's shared object of it.
#[cfg(feature = "sources")]
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

#[cfg(feature = "user")]
mod pod {
    use super::*;

    macro_rules! pod {
        ($($record:ty),+) => {
            // SAFETY: `repr(C)`, no padding (see the layout tests), valid for any bit pattern.
            $(unsafe impl aya::Pod for $record {})+
        };
    }
    pod!(
        Bucket,
        CallStack,
        CallerLineSets,
        CallerRange,
        CallerSpan,
        Coldness,
        Control,
        Event,
        FunctionEntry,
        FunctionStats,
        Handshake,
        Histogram,
        Policy,
        PythonCodeEvent,
        PythonKey,
        RateLimit,
        Requests,
        SiteArguments,
        TrampolineKey,
        UnixName,
        times::FunctionTimes
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, size_of};

    #[test]
    fn records_have_no_padding_and_keep_their_layout() {
        assert_eq!(size_of::<Control>(), 7 * 8);
        assert_eq!(size_of::<Bucket>(), 2 * 8);
        assert_eq!(size_of::<Coldness>(), 8 + 3 * 8);
        assert_eq!(size_of::<Policy>(), 4 * 8);
        assert_eq!(size_of::<ArgumentSpec>(), 1 + 1 + 2 + 2 + 2 + 8);
        assert_eq!(size_of::<SiteArguments>(), 10 * 4 + 3 * size_of::<ArgumentSpec>());
        assert_eq!(offset_of!(SiteArguments, arguments), 40);
        assert_eq!(size_of::<TimedCall>(), 4 * 8 + 4 * 4);
        assert_eq!(size_of::<CallStack>(), 2 * 4 + CALLS_DEPTH as usize * size_of::<TimedCall>());
        assert_eq!(size_of::<times::FunctionTimes>(), 5 * 8);
        assert_eq!(size_of::<FunctionEntry>(), 4);
        assert_eq!(size_of::<FunctionStats>(), 8 * 8);
        assert_eq!(size_of::<Handshake>(), 2 * 8);
        assert_eq!(size_of::<Histogram>(), 176 * 8);
        assert_eq!(size_of::<Telltale>(), 16 * 64);
        assert_eq!(size_of::<Requests>(), (10 + 448) * 8);
        assert_eq!(offset_of!(Requests, latencies), 10 * 8);
        assert_eq!(size_of::<UnixName>(), 128);
        assert_eq!(size_of::<RateLimit>(), 3 * 8);
        assert_eq!(size_of::<TrampolineKey>(), 2 * 8);
        assert_eq!(size_of::<PythonKey>(), function::FILE_BYTES + function::NAME_BYTES + 4);
        assert_eq!(size_of::<Event>(), 4 * 4);
        assert_eq!(size_of::<PythonCodeEvent>(), size_of::<Event>() + size_of::<PythonKey>());
    }

    #[test]
    fn the_control_block_keeps_its_layout() {
        use control_block::{
            Branch, Calls, ControlBlock, FAILURE_TEXT_BYTES, FunctionRecord, SIGNALS, SignalSlot, Turns,
        };
        let signals_end = 136 + FAILURE_TEXT_BYTES + 16 * SIGNALS;
        assert_eq!(size_of::<ControlBlock>(), signals_end + 6 * 4 + 5 * 8 + 2 * 4 + 7 * 8 + 7 * 8 + 24);
        assert_eq!(offset_of!(ControlBlock, callers_capacity), size_of::<ControlBlock>() - 24);
        assert_eq!(offset_of!(ControlBlock, hook_missed), size_of::<ControlBlock>() - 16);
        assert_eq!(offset_of!(ControlBlock, control), signals_end + 72);
        assert_eq!(size_of::<Calls>(), 64);
        assert_eq!(offset_of!(Calls, entry), 32);
        assert_eq!(offset_of!(Calls, thread), 40);
        assert_eq!((offset_of!(Calls, own_calls), offset_of!(Calls, bounded)), (48, 56));
        assert_eq!((size_of::<Turns>(), offset_of!(Turns, shared)), (16, 8));
        assert_eq!(size_of::<SignalSlot>(), 16);
        assert_eq!(offset_of!(ControlBlock, signals), 136 + FAILURE_TEXT_BYTES);
        assert_eq!(offset_of!(ControlBlock, generation), 40);
        assert_eq!(offset_of!(ControlBlock, functions_offset), 56);
        assert_eq!(offset_of!(ControlBlock, state), 96);
        assert_eq!(offset_of!(ControlBlock, failure_text), 136);
        assert_eq!((size_of::<FunctionRecord>(), size_of::<Branch>()), (8 * 4, 2 * 4));
    }

    #[test]
    fn coldness_follows_its_segments_and_ends() {
        let segment = |length_ns, factor| ColdSegment { length_ns, factor: factor * Coldness::ONE };
        let line = [segment(50, 10), segment(100, 2), segment(0, 7)];
        let coldness = Coldness { warm_ns: 100, reserved: 0, segments: line };
        for (took, more) in [(0, 0), (100, 0), (101, 10), (150, 500), (200, 600), (250, 700), (u64::MAX, 700)]
        {
            assert_eq!(coldness.more_ns(took), more, "{took}");
        }
    }

    #[test]
    fn caches_get_no_colder_than_the_time_allows() {
        let line = [ColdSegment { length_ns: 50, factor: 40 * Coldness::ONE }; 3];
        let coldness = Coldness { warm_ns: 100, reserved: 0, segments: line };
        let after_gap = |gap_ns| coldness.more_after_gap_ns(200, gap_ns);
        assert_eq!([0, 127, 128, 12_800].map(after_gap), [0, 0, 1, 100]);
        assert_eq!([512_000, 600_000, u64::MAX].map(after_gap), [4_000; 3]);
        assert_eq!(coldness.more_after_gap_ns(100, u64::MAX), 0);
        let after_spin = |spin_ns| coldness.more_after_spin_ns(200, spin_ns);
        assert_eq!([0, 255, 256, 1_024_000, u64::MAX].map(after_spin), [0, 0, 1, 4_000, 4_000]);
        assert_eq!(coldness.more_after_spin_ns(100, u64::MAX), 0);
    }

    #[test]
    fn ticks_become_time_and_a_preempted_helper_counts_nothing() {
        let site = SiteArguments { tick_ns: (SiteArguments::TICKS / 2) as u32, ..SiteArguments::default() };
        for (ticks, ns) in [(0, 0), (1, 0), (300, 150), (3_999, 1_999), (4_000, 0), (u32::MAX, 0)] {
            assert_eq!(site.helper_ns(ticks), ns, "{ticks}");
        }
        assert_eq!(SiteArguments::default().helper_ns(u32::MAX), 0);
        assert_eq!(SiteArguments { tick_ns: u32::MAX, ..site }.helper_ns(u32::MAX), 0);
    }

    #[test]
    fn a_running_median_follows_and_is_not_thrown() {
        let run = |values: &[u64]| values.iter().fold(0, |last, value| policy::running_median(last, *value));
        assert_eq!(run(&[]), 0);
        assert_eq!(run(&[100]), 100);
        assert_eq!(run(&[100, 100_000]), 107);
        assert_eq!(run(&[100, 0]), 93);
        assert_eq!(run(&[100, 103, 99]), 99);
        let slower: [u64; 30] = [400; 30];
        assert_eq!(slower.iter().fold(100, |last, value| policy::running_median(last, *value)), 400);
        assert_eq!(policy::running_median(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_walk_over_the_telltale_comes_by_every_line() {
        let mut seen = [false; Telltale::LINES];
        let mut line = 0;
        for _ in 0..Telltale::LINES {
            seen[line] = true;
            line = (line + Telltale::STEP) % Telltale::LINES;
        }
        assert_eq!(seen, [true; Telltale::LINES]);
    }

    #[test]
    fn the_key_fits_on_the_bpf_stack_beside_a_spin() {
        assert!(size_of::<PythonKey>() <= 400);
    }

    #[test]
    fn a_window_is_open_until_it_ends_or_expires_or_is_stopped() {
        let control =
            Control { start_ns: 10, end_ns: 30, expires_ns: 20, generation: 7, ..Control::default() };
        for (at, is_open) in [(0, false), (9, false), (10, true), (19, true), (20, false), (30, false)] {
            assert_eq!(control.is_open(at), is_open, "{at}");
        }
        let renewed = Control { expires_ns: 40, ..control };
        assert!(renewed.is_open(29) && !renewed.is_open(30));
        assert!(!Control { stop: 1, ..control }.is_open(15));
    }

    #[test]
    fn the_rows_of_policies_do_not_meet() {
        let rows = |generation| [0, 1, 2].map(|policy| Policy::row(policy, generation));
        assert_eq!((rows(0), rows(1)), ([0, 2, 4], [1, 3, 5]));
        assert_eq!((rows(2), rows(u64::MAX)), (rows(0), rows(1)));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_words_of_a_policy_lie_where_its_fields_do() {
        let policy = Policy { delay_ns: 1, frequency: 2, signal: 3, or_spin: 4, signal_ns: 5 };
        let words = policy.to_words();
        assert_eq!(Policy::from_words(words), policy);
        assert_eq!(size_of::<Policy>(), size_of_val(&words));
        assert_eq!(words[offset_of!(Policy, delay_ns) / 8], 1);
        assert_eq!(words[offset_of!(Policy, frequency) / 8], 2);
        assert_eq!(words[offset_of!(Policy, signal) / 8] as u32, 3);
        assert_eq!((offset_of!(Policy, signal), offset_of!(Policy, or_spin)), (16, 20));
        assert_eq!(words[offset_of!(Policy, signal_ns) / 8], 5);
        let words = [offset_of!(Control, start_ns), offset_of!(Control, generation)].map(|at| at / 8);
        assert_eq!(words, [0, 4]);
        let bound = Bound { share: 6, room: 7 };
        let control = Control { start_ns: 1, end_ns: 2, stop: 3, expires_ns: 4, generation: 5, bound };
        assert_eq!(control.to_words(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(offset_of!(Control, bound) / 8, 5);
        assert_eq!(Control::from_words(control.to_words()), control);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_words_of_counters_lie_where_their_fields_do() {
        let words = [1, 2, 3, 4, 10 << 32 | 6 << 16 | 5, 7, 8, 9];
        let stats = FunctionStats::from_words(words);
        assert_eq!((stats.telltale_ns, stats.telltale_of, stats.histogram), (5, 6, 10));
        assert_eq!((stats.missed, stats.ended_ns, stats.bounded), (7, 8, 9));
        assert_eq!(stats.to_words(), words);
        let telltale = [offset_of!(FunctionStats, telltale_ns), offset_of!(FunctionStats, telltale_of)];
        assert_eq!((telltale, offset_of!(FunctionStats, histogram)), ([32, 34], 36));
    }

    #[test]
    fn a_call_is_decided_by_number_window_policy_turn_and_bound() {
        let policy = |delay_ns, frequency| Policy { delay_ns, frequency, ..Policy::default() };
        let decide = |number, is_open, in_force: Option<Policy>, before| {
            policy::decide(number, || is_open, || in_force, || before, |_| true).map(|policy| policy.delay_ns)
        };
        let every = Some(policy(7, 1));
        assert_eq!(decide(0, true, every, None), Ok(7));
        assert_eq!(decide(NO_POLICY, true, every, None), Err(Some(NotDelayed::NoPolicy)));
        assert_eq!(decide(0, false, every, None), Err(Some(NotDelayed::WindowClosed)));
        assert_eq!(decide(0, true, None, None), Err(None));
        assert_eq!(decide(0, true, Some(policy(0, 0)), None), Err(Some(NotDelayed::NoDelay)));
        let third = |before| decide(0, true, Some(policy(7, 3)), Some(before));
        let not = Err(Some(NotDelayed::Frequency));
        assert_eq!([0, 1, 2, 3, 5, u64::MAX].map(third), [not, not, Ok(7), not, Ok(7), Ok(7)]);
        assert_eq!(decide(0, true, Some(policy(7, 3)), None), Err(None));
        let bounded = policy::decide(0, || true, || every, || None, |delay_ns| delay_ns < 7);
        assert_eq!(bounded, Err(Some(NotDelayed::Bound)));
        // Turns are not counted while there is no delay.
        assert_eq!(decide(0, true, Some(policy(0, 3)), None), Err(Some(NotDelayed::NoDelay)));
    }

    #[test]
    fn a_function_has_its_own_policy_or_another() {
        assert_eq!(FunctionEntry::default(), FunctionEntry::NONE);
        assert_eq!(FunctionEntry::NONE.policy_or(7), 7);
        assert_eq!(FunctionEntry::NONE.policy_or(NO_POLICY), NO_POLICY);
        for policy in [0, 1, 16_383] {
            assert_eq!(FunctionEntry::of(policy).policy_or(7), policy);
            assert_eq!(FunctionEntry::from_word(FunctionEntry::of(policy).to_word()).policy_or(7), policy);
        }
    }

    #[test]
    fn cookies_and_verdicts_survive_the_round_trip() {
        for cookie in [Cookie { process: 0, site: 0 }, Cookie { process: 7, site: u32::MAX }] {
            assert_eq!(Cookie::from_bits(cookie.to_bits()), cookie);
        }
        for verdict in [Verdict::Pending, Verdict::Ignored, Verdict::Function(0), Verdict::Function(99)] {
            assert_eq!(Verdict::from_bits(verdict.to_bits()), verdict);
        }
    }
}
