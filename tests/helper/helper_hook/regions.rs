//! Tools that set their hook for a region of the program and put back what they found, region after region,
//! as PyTorch does for what it compiles.

use std::sync::atomic::Ordering;

use speed_bump_abi::control_block::notice;
use speed_bump_testing::{PythonBuild, wait::wait_until};

use super::program::{Program, counts, on_each, prepared};
use crate::control::Control;

const TARGETS: &str = "*/calls.py:plain\n";
/// 200 calls, in 20 regions.
const CALLS: &str = "for _ in range(20): REGIONS.call(10)";
/// Sessions, each of which begins somewhere in a region, or between two.
const ATTACHES: usize = 12;

/// On each interpreter where ours can be installed while another is there.
fn on_each_from_39(case: impl Fn(&'static PythonBuild) + Sync) {
    on_each(|python| {
        if python.minor() > (3, 8) {
            case(python);
        }
    });
}

/// A program with such a tool.
fn with_regions(program: &mut Program, how: &str) {
    program.ask(&format!("REGIONS = Regions(plain, {how}); REGIONS.start()"));
}

/// The share of the time, in thousandths, in which calls were missed.
fn missed(control: &Control) -> u32 {
    control.head().hook_missed.load(Ordering::Acquire)
}

/// That calls are counted once the tool has gone, and that the session leaves the place as it found it.
#[track_caller]
fn is_as_without_it(python: &PythonBuild, program: &mut Program, control: &Control) {
    program.ask("REGIONS.end()");
    wait_until("the hook", || Ok(program.evaluate("current() != default()") == 1)).unwrap();
    assert_eq!(program.calls(control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
    program.leave(control);
    assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
}

#[test]
fn calls_are_counted_exactly_while_another_hook_comes_and_goes() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        with_regions(&mut program, "");
        for attach in 0..ATTACHES {
            let control = program.attach(TARGETS);
            let counted = program.calls(&control, CALLS);
            assert_eq!(counted, counts(&[("plain", 200)]), "{python}, attach {attach}");
            program.leave(&control);
            assert_eq!(control.notices() & !notice::HOOK_COVERED, 0, "{python}, attach {attach}");
            assert_eq!(program.calls(&control, CALLS), counts(&[]), "{python}, attach {attach}");
        }
        program.ask("REGIONS.end()");
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}

#[test]
fn the_time_of_a_hook_that_comes_and_goes_and_does_not_call_ours_is_said() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        with_regions(&mut program, "direct=True");
        let control = program.attach(TARGETS);
        wait_until("the notice", || Ok(control.notices() & notice::HOOK_MISSED != 0)).unwrap();
        program.ask("time.sleep(0.5)");
        assert!((1..=1000).contains(&missed(&control)), "{python}: {}", missed(&control));
        is_as_without_it(python, &mut program, &control);
    });
}

#[test]
fn a_tool_that_does_not_put_back_what_it_found_is_said() {
    on_each_from_39(|python| {
        let mut program = prepared(python);
        with_regions(&mut program, "forgets=True");
        let control = program.attach(TARGETS);
        wait_until("the notice", || Ok(control.notices() & notice::HOOK_MISSED != 0)).unwrap();
        assert!(missed(&control) > 0, "{python}");
        is_as_without_it(python, &mut program, &control);
    });
}

#[test]
fn a_hook_that_came_later_stays_and_does_not_call_ours_is_called_by_ours() {
    on_each(|python| {
        let mut program = prepared(python);
        let control = program.attach(TARGETS);
        program.ask("FOREIGN.next.value = default(); use(FOREIGN.address)");
        wait_until("ours comes first", || Ok(program.evaluate("current() != FOREIGN.address") == 1)).unwrap();
        let frames = program.evaluate("FOREIGN.counter.value");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        assert!(program.evaluate("FOREIGN.counter.value") - frames > 10, "{python}");
        assert_eq!(control.notices(), notice::HOOK_MISSED, "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current() == FOREIGN.address"), 1, "{python}");
    });
}
