//! Turns the helper's reports into sentences that give the way out.

use speed_bump_abi::control_block::{Failure, notice, unlisted};

use super::{block, functions::LeftOut};
use crate::python::version::PythonVersion;

/// The cost of a call of an unselected function. Source: docs/internals/helper.md.
pub fn unselected_call(version: PythonVersion) -> &'static str {
    if version.is_at_least(3, 12) {
        "nothing, by its documentation (sys.monitoring)"
    } else {
        "1 to 15ns, by the documentation (PEP 523 hook)"
    }
}

/// Why the helper does not work in a process. `words` is the helper's own text with details; it may be empty.
pub fn failure(reason: Option<Failure>, words: &str) -> String {
    let what = match reason {
        Some(Failure::None) | None => {
            "the helper failed for a reason that this version does not know; is another \
                                       version of it in the process? Restart the process, or use --no-inject"
        }
        Some(Failure::BadBlock) => {
            "the helper in the process does not understand this version: it comes from another one; restart \
             the process, or use --no-inject"
        }
        Some(Failure::BadSelector) => {
            "the helper could not read the compiled targets: it comes from another version; restart the \
             process, or use --no-inject"
        }
        Some(Failure::NoPython) => {
            "the process does not export what the helper needs of CPython's API: it runs no CPython yet, or \
             one that is stripped of its symbols; use --no-inject"
        }
        Some(Failure::UnknownVersion) => {
            "the helper does not know this version of CPython; use a newer speed-bump-ebpf, or --no-inject"
        }
        Some(Failure::Finalizing) => "the interpreter is shutting down",
        Some(Failure::NoToolId) => {
            "every tool id of sys.monitoring is taken by profilers, debuggers or coverage: stop one of them, \
             or use --no-inject"
        }
        Some(Failure::Python) => "a call of CPython's own API failed",
        Some(Failure::NoThread) => {
            "the process may not start another thread: raise its limit (ulimit -u, pids.max), or use \
             --no-inject"
        }
        Some(Failure::NoMemory) => {
            "the process may not map the memory that the helper needs: raise its limit of address space, of \
             data or of locked memory (ulimit -v, -d, -l; `prlimit` changes those of a process that runs), \
             or use --no-inject"
        }
        Some(Failure::NotMapped) => {
            "the process could not map what the helper shares with this tool: does a security module forbid \
             it? Use --no-inject"
        }
        Some(Failure::NoThreads) => {
            "the program has no library for threads (pthread_create), and the helper needs one; use \
             --no-inject"
        }
        Some(Failure::NoClock) => {
            "the program has no clock (clock_gettime) that the helper could delay by; use --engine bpf"
        }
        Some(Failure::Busy) => {
            "another session delays Python functions in the process already: end or change that one"
        }
        Some(Failure::Unsupported) => {
            "this build of CPython cannot be covered by the helper; use --no-inject"
        }
    };
    if words.is_empty() { what.to_owned() } else { format!("{what} ({words})") }
}

/// Why a helper refused to start, from the number that its install function returned.
pub fn refusal(number: u32) -> String {
    let reason = block::failure(number);
    let words = if reason.is_none() { format!("failure {number}") } else { String::new() };
    failure(reason, &words)
}

/// What follows when a thread keeps the interpreter's lock.
pub const GIL_KEPT: &str = "a thread keeps the interpreter's lock while it sleeps, as a uWSGI without \
                            `enable-threads` does: the process, and what it forks from now on, are covered \
                            from when they next execute Python code";

/// The helper's notices: a sentence for each bit. This ignores unknown bits.
pub fn notices(bits: u32) -> Vec<&'static str> {
    const ALL: [(u32, &str); 11] = [
        (
            notice::TOOL_ID_LOST,
            "another tool took the helper's sys.monitoring tool id: Python calls are no longer seen; end \
             that tool, and attach again",
        ),
        (
            notice::HOOK_COVERED,
            "another frame evaluation hook was set after the helper's and keeps calling it: the helper's \
             stays chained to it, at some nanoseconds a call, for as long as that one is there",
        ),
        (
            notice::HOOK_MISSED,
            "another frame evaluation hook is in the place of the helper's now and then and does not call \
             it: calls are not seen meanwhile; the report says for how much of the time",
        ),
        (
            notice::SUBINTERPRETERS,
            "there are sub-interpreters whose functions are not covered: this build has no GIL, or another \
             tool has a frame evaluation hook or all tool ids there",
        ),
        (
            notice::TABLE_FULL,
            "the targets select more functions than there is room for: those that came last are not covered, \
             so they are neither counted nor delayed; narrow the targets, or raise the process's limit of \
             address space, if it has one (ulimit -v)",
        ),
        (
            notice::NAME_UNSURE,
            "the qualified name of some functions was not found: the last component of the pattern was \
             compared with their unqualified name",
        ),
        (
            notice::STACK_SHORT,
            "a thread had used half of its C stack, and CPython 3.11 uses more of it for each call that is \
             seen: calls were not seen until that thread had returned",
        ),
        (
            notice::CALLER_UNKNOWN,
            "this build of CPython does not show which function calls another one: calls that lines with \
             `caller=` are for are neither counted nor delayed by those; leave `caller=` out",
        ),
        (notice::GIL_KEPT, GIL_KEPT),
        (
            notice::FORKED_UNCOVERED,
            "a child that it has forked is not covered: its Python calls are neither counted nor delayed; \
             attach again, now that it is there",
        ),
        (
            notice::LOADER_GONE,
            "the helper missed this tool's heartbeat and has left: was the tool stopped, or the machine \
             suspended? Attach again",
        ),
    ];
    texts(bits, &ALL)
}

/// Why the helper missed calls of covered functions, so that the counts are incomplete. `hook_missed` is in
/// thousandths: the share of the time in which another hook replaced the helper's.
pub fn missed(bits: u32, hook_missed: u32) -> Vec<String> {
    let unseen = notice::TOOL_ID_LOST | notice::STACK_SHORT | notice::LOADER_GONE | notice::CALLER_UNKNOWN;
    let mut missed: Vec<_> = notices(bits & unseen).into_iter().map(str::to_owned).collect();
    if bits & notice::HOOK_MISSED != 0 {
        // The process could write any number.
        let percent = f64::from(hook_missed.clamp(1, 1000)) / 10.0;
        missed.push(format!(
            "for {percent:.1} % of the time another frame evaluation hook was in the place of the helper's \
             and did not call it: calls in that time were not seen"
        ));
    }
    missed
}

/// Why the helper may not list some loaded functions: a sentence for each bit.
pub fn not_listed(bits: u32) -> Vec<&'static str> {
    texts(
        bits,
        &[
            (
                unlisted::FROZEN,
                "the program has taken objects from its garbage collector (gc.freeze), and this build of \
                 CPython does not show them: functions among them are known once they are called",
            ),
            (
                unlisted::ELSEWHERE,
                "there are sub-interpreters: functions that they alone have are known once they are called",
            ),
            (
                unlisted::WITHOUT_GIL,
                "this build has no GIL and may not show all of its functions: those are known once they \
                 are called",
            ),
        ],
    )
}

fn texts(bits: u32, all: &[(u32, &'static str)]) -> Vec<&'static str> {
    all.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, text)| *text).collect()
}

/// A sentence for each kind of omission.
pub fn left_out(what: LeftOut) -> Vec<&'static str> {
    let ends = "some names of its functions and files have more than 4 KiB and are cut";
    let functions = "the names of its functions and files take more than 16 MiB: some functions are left out \
                     of the report, and delayed all the same";
    let nameless = "some of its functions have no name, as no compiler leaves them: they are left out of the \
                    report, and delayed all the same";
    [(what.ends_of_names, ends), (what.functions, functions), (what.nameless, nameless)]
        .into_iter()
        .filter(|(is_left_out, _)| *is_left_out)
        .map(|(_, text)| text)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_with_the_bounds_as_they_are() {
        use crate::bounds::{NAME_BYTES, NAMES_OF_PROCESS};
        let all = LeftOut { ends_of_names: true, functions: true, nameless: true };
        let [ends, functions, _] = left_out(all)[..] else {
            unreachable!("three kinds");
        };
        assert!(ends.contains(&format!("{} KiB", NAME_BYTES >> 10)));
        assert!(functions.contains(&format!("{} MiB", NAMES_OF_PROCESS >> 20)));
        assert_eq!(left_out(LeftOut::default()), [""; 0]);
    }

    #[test]
    fn every_failure_and_notice_has_words_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for number in 1..=14 {
            let reason = block::failure(number);
            assert!(reason.is_some() && seen.insert(failure(reason, "")), "{number}");
        }
        assert!(failure(Some(Failure::Python), "PyList_New").contains("(PyList_New)"));
        assert!(failure(None, "").contains("another version"));
        assert!(refusal(Failure::NoThread as u32).contains("ulimit -u"));
        assert!(refusal(Failure::NoMemory as u32).contains("ulimit -v"));
        assert!(refusal(4711).ends_with("(failure 4711)"));
        assert_eq!(notices(u32::MAX).len(), 11);
        assert_eq!(notices(0).len(), 0);
        assert_eq!(not_listed(u32::MAX).len(), 3);
        let missed = missed(u32::MAX, u32::MAX);
        assert!(missed.len() == 5 && missed[4].starts_with("for 100.0 % of the time"), "{missed:?}");
        assert_eq!(not_listed(0).len(), 0);
        assert!(notices(notice::TABLE_FULL)[0].contains("narrow"));
    }
}
