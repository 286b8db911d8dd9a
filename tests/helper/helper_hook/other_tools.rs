//! Hooks of other tools, before ours, after it, and in its place.

use speed_bump_abi::control_block::{Failure, HelperCommand, State, notice};
use speed_bump_testing::wait::wait_until;

use super::program::{TARGETS, counts, on_each, prepared};
use crate::control::Control;

#[test]
fn a_hook_that_was_there_before_is_asked_and_put_back() {
    on_each(|python| {
        let mut program = prepared(python);
        let frames = "FOREIGN.counter.value";
        program.ask("FOREIGN.begin()");
        if python.minor() == (3, 8) {
            let control = Control::new(TARGETS, HelperCommand::Run);
            program.begin(&control);
            control.wait_for(State::Failed);
            assert!(control.failed_with(Failure::Unsupported), "{}", control.failure());
            assert!(control.failure().contains("another tool"), "{}", control.failure());
            assert_eq!(program.evaluate("current() == FOREIGN.address"), 1, "{python}");
            return;
        }
        let control = program.attach(TARGETS);
        let before = program.evaluate(frames);
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        assert!(program.evaluate(frames) - before > 10, "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current() == FOREIGN.address"), 1, "{python}");
        assert_eq!(control.notices(), 0, "{python}");
        program.ask("FOREIGN.end()");
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}

#[test]
fn a_hook_that_came_later_stays_and_is_said() {
    on_each(|python| {
        let mut program = prepared(python);
        let control = program.attach(TARGETS);
        program.ask("FOREIGN.begin()");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.leave(&control);
        assert_eq!(control.notices(), notice::HOOK_COVERED, "{python}");
        assert_eq!(program.evaluate("current() == FOREIGN.address"), 1, "{python}");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[]), "{python}");
        // The next session finds its hook where the last one left it, and counts once.
        let control = program.attach(TARGETS);
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        // Ours becomes the first again when the other goes.
        program.ask("FOREIGN.end()");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}

#[test]
fn hooks_that_call_each_other_do_not_do_so_without_end() {
    on_each(|python| {
        if python.minor() == (3, 8) {
            return;
        }
        let mut program = prepared(python);
        program.ask("FOREIGN.begin()");
        let control = program.attach(TARGETS);
        // The other comes once more, on top of ours, and forgets what it called before.
        program.ask("FOREIGN.begin()");
        program.ask("times(10, plain, 1); down(100)");
        program.tally.take(&control);
        wait_until("the notice", || Ok(control.notices() == notice::HOOK_COVERED)).unwrap();
        program.leave(&control);
        program.ask("times(10, plain, 1); down(100)");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[]), "{python}");
    });
}

#[test]
fn a_hook_that_another_tool_removed_comes_back() {
    on_each(|python| {
        let mut program = prepared(python);
        let control = program.attach(TARGETS);
        program.ask("use(default())");
        wait_until("the notice", || Ok(control.notices() == notice::HOOK_MISSED)).unwrap();
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}
