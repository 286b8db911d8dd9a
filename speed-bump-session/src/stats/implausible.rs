//! Recognises impossible numbers.
//!
//! The counts of a helper are in memory that its process can write. If numbers are wrong but possible, we
//! cannot detect that.

use std::time::Duration;

use super::report::FunctionReport;
use crate::units::Nanos;

/// The most processors that a machine can have (`NR_CPUS`, arch/x86/Kconfig).
const PROCESSORS: u64 = 8_192;
/// The most threads that a machine can have (`PID_MAX_LIMIT`, include/linux/threads.h).
const THREADS: u64 = 1 << 22;

/// The warning about functions with impossible numbers, after a session of this length.
pub(crate) fn warning<'a>(
    functions: impl Iterator<Item = &'a FunctionReport>,
    duration: Duration,
) -> Option<String> {
    // The last delays may end after the session.
    let ns = Nanos::from(duration).0.saturating_add(Nanos::MAX_DELAY.0);
    let most = Most { calls: ns.saturating_mul(PROCESSORS), time: Nanos(ns.saturating_mul(THREADS)) };
    let mut wrong = functions.filter(|function| most.is_exceeded_by(function));
    let first = wrong.next()?;
    let others = match wrong.count() {
        0 => String::new(),
        others => format!(" and {others} more functions"),
    };
    Some(format!(
        "the numbers of {} in {}{others} cannot be true: no machine has so many calls, or so much time, in \
         {}. The process has changed what was counted: believe none of its numbers",
        first.name,
        first.file.display(),
        Nanos::from(duration)
    ))
}

/// The greatest possible values.
struct Most {
    /// A call takes at least a nanosecond of a processor.
    calls: u64,
    /// Each thread can have calls for the whole length of the session.
    time: Nanos,
}

impl Most {
    fn is_exceeded_by(&self, function: &FunctionReport) -> bool {
        let times = function.times.iter().flat_map(|times| [times.own_ns, times.cumulative_ns]);
        let of_callers = function.callers.iter().flatten();
        let more = of_callers.clone().flat_map(|caller| [caller.own_ns, caller.cumulative_ns]);
        let mut times = times.chain(more).chain([function.requested_ns, function.delivered_ns]);
        let resumed = function.times.iter().map(|times| times.resumed);
        let mut calls =
            resumed.chain(of_callers.map(|caller| caller.calls)).chain([function.calls, function.delayed]);
        calls.any(|calls| calls > self.calls) || times.any(|time| time > self.time)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use speed_bump_abi::{FunctionStats, times::FunctionTimes};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn function(stats: FunctionStats, times: FunctionTimes) -> FunctionReport {
        FunctionReport::new("f".into(), "/a.py".into(), None, stats).with_times(Some(times))
    }

    #[test]
    fn what_a_machine_can_have_is_not_told() {
        let stats = FunctionStats {
            calls: 8_192_000_000_000,
            delayed: 8_192_000_000_000,
            requested_ns: 4_000_000_000_000_000,
            delivered_ns: 4_000_000_000_000_000,
            ..FunctionStats::default()
        };
        let times = FunctionTimes {
            own_ns: 4_000_000_000_000_000,
            cumulative_ns: 4_000_000_000_000_000,
            ..FunctionTimes::default()
        };
        assert_eq!(warning([function(stats, times)].iter(), SECOND), None);
    }

    #[test]
    fn what_none_can_have_is_told_once() {
        let none = (FunctionStats::default(), FunctionTimes::default());
        let wild = u64::MAX / 2;
        let cases = [
            (FunctionStats { calls: wild, ..none.0 }, none.1),
            (FunctionStats { delayed: wild, ..none.0 }, none.1),
            (FunctionStats { requested_ns: wild, ..none.0 }, none.1),
            (FunctionStats { delivered_ns: wild, ..none.0 }, none.1),
            (none.0, FunctionTimes { own_ns: wild, ..none.1 }),
            (none.0, FunctionTimes { cumulative_ns: wild, ..none.1 }),
            (none.0, FunctionTimes { resumed: wild, ..none.1 }),
        ];
        let functions = cases.map(|(stats, times)| function(stats, times));
        for function in &functions {
            let text = warning([function].into_iter(), SECOND).unwrap();
            assert!(text.contains("f in /a.py cannot be true") && text.contains("in 1s."), "{text}");
        }
        let text = warning(functions.iter(), SECOND).unwrap();
        assert!(text.contains("f in /a.py and 6 more functions cannot"), "{text}");
    }
}
