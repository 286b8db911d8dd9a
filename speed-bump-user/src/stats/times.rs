//! Own and cumulative times of functions, as reports have them.

use serde::{Deserialize, Serialize};
use speed_bump_abi::{CALLS_DEPTH, times::FunctionTimes};

use crate::{probe::plan::SelectedFunction, units::Nanos};

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

/// Calls whose time is in no sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untimed {
    /// Their end was not seen in its turn.
    pub unmatched: u64,
    /// There was no room for them.
    pub without_room: u64,
}

impl Untimed {
    /// What there is to say of calls of Python functions.
    pub fn of_python(self) -> impl Iterator<Item = String> {
        const UNSEEN: &str = "not seen in its turn, as where greenlets switch in the middle of calls";
        self.warnings("calls", UNSEEN, 2048)
    }

    /// What there is to say of calls of native functions.
    pub fn of_native(self) -> impl Iterator<Item = String> {
        const UNSEEN: &str =
            "not seen, as where an exception or longjmp leaves a function, or a thread changes its stack";
        self.warnings("calls of native functions", UNSEEN, CALLS_DEPTH)
    }

    fn warnings(self, calls: &str, unseen: &str, depth: u32) -> impl Iterator<Item = String> {
        let Self { unmatched, without_room } = self;
        let left_out = |count: u64, why: String| {
            (count > 0).then(|| format!("the times of {count} {calls} are left out: {why}"))
        };
        let unmatched = left_out(unmatched, format!("their end was {unseen}"));
        let without_room = left_out(
            without_room,
            format!(
                "they were nested more than {depth} deep, or in more threads than there is room for; select \
                 fewer functions"
            ),
        );
        unmatched.into_iter().chain(without_room)
    }
}

impl std::ops::AddAssign for Untimed {
    fn add_assign(&mut self, other: Self) {
        // Processes write them.
        self.unmatched = self.unmatched.saturating_add(other.unmatched);
        self.without_room = self.without_room.saturating_add(other.without_room);
    }
}

/// How many functions are named that are not timed.
const NAMED: usize = 5;

/// What there is to say of functions that are not timed, and why each is not.
pub fn not_timed<'a>(functions: impl Iterator<Item = (&'a SelectedFunction, &'a str)>) -> Vec<String> {
    let mut functions = functions.peekable();
    let mut texts: Vec<String> = functions
        .by_ref()
        .take(NAMED)
        .map(|(function, why)| {
            let (name, path) = (&function.name, function.file.display());
            format!("calls of {name} in {path} are counted and not timed: {why}")
        })
        .collect();
    let others = functions.count();
    if others > 0 {
        texts.push(format!(
            "calls of {others} more functions are counted and not timed; `list --times` says why"
        ));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TargetIndex;

    #[test]
    fn primitive_calls_are_those_that_are_not_recursive() {
        let times =
            FunctionTimes { recursive: 3, resumed: 5, recursive_resumed: 1, own_ns: 7, cumulative_ns: 9 };
        let report = TimesReport::new(10, times);
        assert_eq!((report.primitive_calls, report.resumed, report.primitive_resumed), (7, 5, 4));
        assert_eq!(TimesReport::new(2, times).primitive_calls, 0, "what a process writes may be nonsense");
    }

    #[test]
    fn what_is_not_timed_is_told_of_each_kind() {
        assert_eq!(Untimed::default().of_python().count(), 0);
        let mut untimed = Untimed { unmatched: 3, without_room: u64::MAX };
        untimed += untimed;
        let warnings: Vec<_> = untimed.of_python().collect();
        assert!(warnings.len() == 2 && warnings[0].contains("of 6 calls"), "{warnings:?}");
        assert_eq!(Untimed::default().of_native().count(), 0);
        let native = Untimed { unmatched: 4, without_room: 2 };
        let warnings: Vec<_> = native.of_native().collect();
        assert!(warnings[0].contains("of 4 calls") && warnings[1].contains("64 deep"), "{warnings:?}");
    }

    #[test]
    fn of_many_functions_some_are_named() {
        let function = |number: usize| SelectedFunction {
            target: TargetIndex(0),
            name: format!("f{number}"),
            file: "/lib/a.so".into(),
            line: None,
        };
        let functions: Vec<_> = (0..8).map(function).collect();
        let told = |count| not_timed(functions.iter().take(count).map(|function| (function, "because")));
        assert_eq!(told(0), [""; 0]);
        assert_eq!(told(1), ["calls of f0 in /lib/a.so are counted and not timed: because"]);
        assert_eq!(told(5).len(), 5);
        let all = told(8);
        assert!(all.len() == 6 && all[5].starts_with("calls of 3 more functions"), "{all:?}");
    }
}
