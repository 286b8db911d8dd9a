//! Who calls a function, as reports have it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use speed_bump_abi::callers::PairTimes;

use crate::{probe::plan::SelectedFunction, units::Nanos};

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
    pub fn new(caller: &SelectedFunction, times: PairTimes) -> Self {
        Self {
            name: caller.name.clone(),
            file: caller.file.clone(),
            line: caller.line,
            calls: times.calls,
            primitive_calls: times.calls.saturating_sub(times.recursive),
            own_ns: Nanos(times.own_ns),
            cumulative_ns: Nanos(times.cumulative_ns),
        }
    }

    /// Adds calls by what is the same function to who reads it. Whether they are.
    pub(crate) fn take_in(&mut self, other: &Self) -> bool {
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

/// What there is to say of calls whose caller is in no pair.
pub fn without_caller(calls: u64) -> Option<String> {
    (calls > 0).then(|| {
        format!(
            "the callers of {calls} calls are left out: it could not be told who calls, or there is no room \
             for more callers and pairs; where functions are many, select fewer"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::targets::TargetIndex;

    #[test]
    fn primitive_calls_are_those_that_are_not_recursive() {
        let caller = SelectedFunction {
            target: TargetIndex(0),
            name: "A.f".into(),
            file: "/a.py".into(),
            line: Some(3),
        };
        let times = PairTimes { calls: 5, recursive: 2, own_ns: 10, cumulative_ns: 20 };
        let report = CallerReport::new(&caller, times);
        assert_eq!((report.calls, report.primitive_calls), (5, 3));
        let nonsense = PairTimes { recursive: 9, ..times };
        assert_eq!(CallerReport::new(&caller, nonsense).primitive_calls, 0);
        let mut both = report.clone();
        assert!(both.take_in(&report) && (both.calls, both.own_ns) == (10, Nanos(20)));
        assert!(!both.take_in(&CallerReport { line: None, ..report.clone() }));
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<CallerReport>(&json).unwrap(), report);
    }

    #[test]
    fn what_is_left_out_is_told() {
        assert_eq!(without_caller(0), None);
        assert!(without_caller(3).unwrap().starts_with("the callers of 3 calls are left out"));
    }
}
