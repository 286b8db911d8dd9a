//! What `--json` of a session has, as far as reports are made of it.

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
    /// For each line of the targets file.
    pub targets: Vec<RecordedTarget>,
}

/// What was counted for one target.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedTarget {
    /// What kind of function it selects.
    pub kind: TargetKind,
    /// Its functions.
    pub functions: Vec<RecordedFunction>,
}

/// What was counted for one function.
#[derive(Clone, Debug, Deserialize)]
pub struct RecordedFunction {
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// The file that it lies in.
    pub file: PathBuf,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// Calls seen.
    pub calls: u64,
    /// Its times, where calls were timed.
    #[serde(flatten)]
    pub times: Option<TimesReport>,
    /// Who called it, where that was recorded.
    #[serde(default)]
    pub callers: Option<Vec<CallerReport>>,
}

/// The calls of one function by another one. Only calls that have ended, or were suspended, are in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerReport {
    /// The qualified name of the function that calls.
    pub name: String,
    /// The file that it lies in, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, where known.
    pub line: Option<u32>,
    /// Calls; a generator or coroutine that goes on is called again.
    pub calls: u64,
    /// Calls while no other call of the one by the other was in progress on the thread.
    pub primitive_calls: u64,
    /// Time in these calls without that in other timed functions.
    pub own_ns: Nanos,
    /// Time in these calls with all that was called; of a recursion, that of the outermost call alone.
    pub cumulative_ns: Nanos,
}

impl CallerReport {
    /// By this function, which a target may select or not.
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

    /// Adds calls by what is the same function to who reads it. Whether they are.
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

/// The times of one function. Only calls that have ended, or were suspended, are in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimesReport {
    /// Time in the function without that in other timed functions that it called, delays of its own included.
    pub own_ns: Nanos,
    /// Time in the function with all that it called; of a recursion, that of the outermost call alone.
    pub cumulative_ns: Nanos,
    /// Calls while no other one of the function was in progress on the thread.
    pub primitive_calls: u64,
    /// How often a generator or coroutine went on after it had been suspended. `cProfile` counts that as a
    /// call.
    pub resumed: u64,
    /// How often that was while no other call of the function was in progress on the thread.
    pub primitive_resumed: u64,
}

impl TimesReport {
    /// Of a function that was called so often.
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
    fn primitive_calls_by_a_caller_are_those_that_are_not_recursive() {
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
    fn primitive_calls_are_those_that_are_not_recursive() {
        let times =
            FunctionTimes { recursive: 3, resumed: 5, recursive_resumed: 1, own_ns: 7, cumulative_ns: 9 };
        let report = TimesReport::new(10, times);
        assert_eq!((report.primitive_calls, report.resumed, report.primitive_resumed), (7, 5, 4));
        assert_eq!(TimesReport::new(2, times).primitive_calls, 0, "what a process writes may be nonsense");
    }
}
