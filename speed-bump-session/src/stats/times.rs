//! Warnings about calls whose own and cumulative times we do not know.

use speed_bump_abi::CALLS_DEPTH;
pub use speed_bump_experiment::report::session::TimesReport;

use crate::probe::plan::SelectedFunction;

/// The numbers of calls whose times are in no sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Untimed {
    /// Calls whose end we did not see, or did not see in the expected order.
    pub unmatched: u64,
    /// Calls for which there was no room.
    pub without_room: u64,
}

impl Untimed {
    /// The warnings about calls of Python functions.
    pub fn of_python(self) -> impl Iterator<Item = String> {
        const UNSEEN: &str = "not seen in its turn, as where greenlets switch in the middle of calls";
        self.warnings("calls", UNSEEN, 2048)
    }

    /// The warnings about calls of native functions.
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
        // The process controls these numbers.
        self.unmatched = self.unmatched.saturating_add(other.unmatched);
        self.without_room = self.without_room.saturating_add(other.without_room);
    }
}

/// How many functions without times the warnings name.
const NAMED: usize = 5;

/// Warnings about functions that we do not time, each with the reason.
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
