//! Hooks that come again after ours was set on top of them, that call ours all the same, or that have gone;
//! and a session that finds the hook of an earlier one.

use speed_bump_abi::control_block::notice;
use speed_bump_testing::{PythonBuild, wait::wait_until};

use super::program::{TARGETS, counts, on_each, prepared};

/// On each interpreter where ours can be set before another one.
fn on_each_from_39(case: impl Fn(&'static PythonBuild) + Sync) {
    on_each(|python| {
        if python.minor() > (3, 8) {
            case(python);
        }
    });
}

/// A function of sub-interpreters.
const THERE: &str = "<s*>:there\n";

/// As PyTorch does whose first compiled region began before the session, and whose last one found ours.
#[test]
fn a_hook_that_has_gone_is_not_put_back_when_the_session_ends() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        program.ask("FOREIGN.begin()");
        let control = program.attach(TARGETS);
        // Another thread of it: finds ours, calls it, and puts it back.
        program.ask("OURS = current(); FOREIGN.next.value = OURS; use(FOREIGN.address)");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.ask("use(OURS)");
        let frames = program.evaluate("FOREIGN.counter.value");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current() == FOREIGN.address"), 0, "{python}");
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
        assert_eq!(program.evaluate("FOREIGN.counter.value"), frames, "{python}: it was called");
    });
}

#[test]
fn a_hook_that_goes_after_the_session_is_not_put_back() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        program.ask("FOREIGN.begin()");
        let control = program.attach(TARGETS);
        program.ask("OURS = current(); FOREIGN.next.value = OURS; use(FOREIGN.address)");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.leave(&control);
        assert_eq!(control.notices(), notice::HOOK_COVERED, "{python}");
        program.ask("use(OURS)");
        program.ask("times(10, plain, 1)");
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}

#[test]
fn calls_are_counted_once_where_a_hook_that_runs_python_was_taken_for_one_that_does_not_call_ours() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        let control = program.attach(TARGETS);
        program.ask("OTHER = Running()");
        assert_eq!(program.evaluate("OTHER.stay_uncalled() != OTHER.address"), 1, "{python}");
        for round in 0..3 {
            let counted = program.calls(&control, "times(10, plain, 1)");
            assert_eq!(counted, counts(&[("plain", 10)]), "{python}, round {round}");
        }
        program.leave(&control);
        program.ask("OTHER.end()");
        program.ask("times(10, plain, 1)");
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}

#[test]
fn a_hook_that_runs_python_and_calls_ours_does_not_do_so_without_end() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        program.ask("OTHER = Running(); OTHER.begin()");
        let control = program.attach(TARGETS);
        // Ours comes before it, and is what it calls.
        program.ask("OTHER.next.value = current()");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        let frames = program.evaluate("OTHER.counter.value");
        program.ask("down(100)");
        assert!(program.evaluate("OTHER.counter.value") - frames > 100, "{python}");
        program.leave(&control);
    });
}

/// Where its threads are deep in their stacks, 3.11 has no hook.
#[test]
fn a_session_after_one_that_ended_deep_in_the_stack_finds_that_its_hook_was_removed() {
    on_each(|python| {
        if python.minor() != (3, 11) {
            return;
        }
        let mut program = prepared(python);
        let control = program.attach(TARGETS);
        program.ask("DEEP = Deep(3000)");
        wait_until("the depth", || Ok(control.notices() & notice::STACK_SHORT != 0)).unwrap();
        program.leave(&control);
        program.ask("DEEP.let_go()");
        let control = program.attach(TARGETS);
        program.ask("use(default())");
        wait_until("the notice", || Ok(control.notices() == notice::HOOK_MISSED)).unwrap();
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.leave(&control);
    });
}

#[test]
fn sub_interpreters_are_covered_after_a_session_beside_a_hook_that_has_gone_since() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        program.ask("from subs import *; SUB = begin(); FOREIGN.begin()");
        let control = program.attach(TARGETS);
        program.leave(&control);
        program.ask("FOREIGN.end()");
        let control = program.attach(THERE);
        let calls = "inside(SUB, 'for _ in range(100): there(1)')";
        assert_eq!(program.calls(&control, calls), counts(&[("there", 100)]), "{python}");
        assert_eq!(control.notices(), 0, "{python}");
        program.leave(&control);
        program.ask("end(SUB)");
    });
}

/// Without any hook, 3.11 needs no C stack for calls; with another tool's, it does without ours, too.
#[test]
fn recursion_is_as_deep_as_without_a_hook_when_the_one_that_ours_came_before_has_gone() {
    on_each(|python| {
        if python.minor() != (3, 11) {
            return;
        }
        let mut program = prepared(python);
        program.ask("FOREIGN.begin()");
        let control = program.attach(TARGETS);
        program.ask("OURS = current(); FOREIGN.next.value = OURS; use(FOREIGN.address)");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.ask("use(OURS); DEPTH = in_thread(0, 400000, down, 300000)");
        assert_eq!(program.evaluate("DEPTH"), 300_000, "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}
