//! The parts of a session's `--json` that reports use.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use speed_bump_abi::{callers::PairTimes, times::FunctionTimes};
use speed_bump_names::TargetKind;

use crate::units::Nanos;

/// A session that has ended.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedSession {
    /// From attach to detach.
    pub duration_ns: Nanos,
    /// One for each line of the targets file.
    pub targets: Vec<RecordedTarget>,
}

/// Counts of one target.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedTarget {
    /// The kind of function that it selects.
    pub kind: TargetKind,
    /// Functions that it selected, as the report lists them.
    pub functions: Vec<RecordedFunction>,
}

/// Counts of one function.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedFunction {
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// The file that it lies in.
    pub file: PathBuf,
    /// The line of its definition, if known.
    pub line: Option<u32>,
    /// Number of calls.
    pub calls: u64,
    /// Its times, if calls were timed.
    #[serde(flatten)]
    pub times: Option<TimesReport>,
    /// Its callers, if they were recorded.
    #[serde(default)]
    pub callers: Option<Vec<CallerReport>>,
}

/// Calls of one function by another one: only calls that have ended or were suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerReport {
    /// The qualified name of the caller.
    pub name: String,
    /// The file that it lies in, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, if known.
    pub line: Option<u32>,
    /// Number of calls; resuming a generator or coroutine counts as a call.
    pub calls: u64,
    /// Calls that began while no other call by the same caller was in progress on the thread.
    pub primitive_calls: u64,
    /// Time in these calls without other timed functions.
    pub own_ns: Nanos,
    /// Time in these calls with everything that they called; in a recursion, only the outermost call counts.
    pub cumulative_ns: Nanos,
}

impl CallerReport {
    /// The calls by the function with this name, file and line. No target has to select it.
    pub fn new(name: String, file: PathBuf, line: Option<u32>, times: PairTimes) -> Self {
        Self {
            name,
            file,
            line,
            calls: times.calls,
            primitive_calls: times.calls.saturating_sub(times.recursive),
            own_ns: Nanos(times.own_ns),
            cumulative_ns: Nanos(times.cumulative_ns),
        }
    }

    /// Adds the calls of another entry if both show the same name, file and line of the caller. Returns
    /// whether they do.
    pub fn take_in(&mut self, other: &Self) -> bool {
        let is_same = (&self.name, &self.file, self.line) == (&other.name, &other.file, other.line);
        if is_same {
            let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
            add(&mut self.calls, other.calls);
            add(&mut self.primitive_calls, other.primitive_calls);
            add(&mut self.own_ns.0, other.own_ns.0);
            add(&mut self.cumulative_ns.0, other.cumulative_ns.0);
        }
        is_same
    }
}

/// Times of one function, of calls that have ended or were suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimesReport {
    /// Time in the function without other timed functions that it called, including its own delays.
    pub own_ns: Nanos,
    /// Time in the function with everything that it called; in a recursion, only the outermost call counts.
    pub cumulative_ns: Nanos,
    /// Calls that began while no other call of the function was in progress on the thread.
    pub primitive_calls: u64,
    /// How often a suspended generator or coroutine was resumed. `cProfile` counts that as a call.
    pub resumed: u64,
    /// How often it was resumed while no other call of the function was in progress on the thread.
    pub primitive_resumed: u64,
}

impl TimesReport {
    /// Times of a function with this number of calls.
    pub fn new(calls: u64, times: FunctionTimes) -> Self {
        Self {
            own_ns: Nanos(times.own_ns),
            cumulative_ns: Nanos(times.cumulative_ns),
            primitive_calls: calls.saturating_sub(times.recursive),
            resumed: times.resumed,
            primitive_resumed: times.resumed.saturating_sub(times.recursive_resumed),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn primitive_calls_by_a_caller_exclude_recursion() {
        let caller = |times| CallerReport::new("A.f".into(), "/a.py".into(), Some(3), times);
        let times = PairTimes { calls: 5, recursive: 2, own_ns: 10, cumulative_ns: 20 };
        let report = caller(times);
        assert_eq!((report.calls, report.primitive_calls), (5, 3));
        let nonsense = PairTimes { recursive: 9, ..times };
        assert_eq!(caller(nonsense).primitive_calls, 0);
        let mut both = report.clone();
        assert!(both.take_in(&report) && (both.calls, both.own_ns) == (10, Nanos(20)));
        assert!(!both.take_in(&CallerReport { line: None, ..report.clone() }));
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<CallerReport>(&json).unwrap(), report);
    }

    #[test]
    fn primitive_calls_exclude_recursion() {
        let times =
            FunctionTimes { recursive: 3, resumed: 5, recursive_resumed: 1, own_ns: 7, cumulative_ns: 9 };
        let report = TimesReport::new(10, times);
        assert_eq!((report.primitive_calls, report.resumed, report.primitive_resumed), (7, 5, 4));
        assert_eq!(TimesReport::new(2, times).primitive_calls, 0, "a process may write any numbers");
    }
}
