//! The C stack, of which 3.11 takes more with a hook than without.

use speed_bump_abi::control_block::notice;
use speed_bump_testing::{case_ran, places, skip_case};

use super::program::{Program, TARGETS, counts, on_each, prepared};

#[test]
fn recursion_ends_where_it_ends_without_a_hook() {
    on_each(|python| {
        let mut program = prepared(python);
        let depths = |program: &mut Program| {
            [
                "fall()",
                "in_thread(1 << 20, 300, fall)",
                "in_thread(0, 3000, fall)",
                "in_thread(0, 900, fall_through_c)",
            ]
            .map(|expression| program.evaluate(expression))
        };
        // Twice, as code that was not specialised yet may end one call earlier.
        depths(&mut program);
        let without = depths(&mut program);
        let control = program.attach("*/hooked.py:*\n");
        let with = depths(&mut program);
        assert_eq!(with, without, "{python}");
        assert_eq!(control.notices(), 0, "{python}");
    });
}

#[test]
fn deep_recursion_never_overflows_the_stack_for_a_hook() {
    on_each(|python| {
        if python.minor() != (3, 11) {
            // Before, calls take the same stack with a hook and without.
            return;
        }
        let mut program = prepared(python);
        let deep = [
            ("in_thread(64 << 10, 2000, down, 1500)", 1500),
            ("in_thread(256 << 10, 60000, down, 50000)", 50_000),
            ("in_thread(0, 400000, down, 300000)", 300_000),
        ];
        for (expression, result) in deep {
            assert_eq!(program.evaluate(expression), result, "{python} without a hook");
        }
        let control = program.attach(TARGETS);
        for (expression, result) in deep {
            assert_eq!(program.evaluate(expression), result, "{python}");
        }
        assert_eq!(control.notices(), notice::STACK_SHORT, "{python}");
        // The hook is back.
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        assert_eq!(
            program.calls(&control, "in_thread(0, 6000, down, 5000)"),
            counts(&[("down", 5001)]),
            "{python}"
        );
        program.leave(&control);
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}

#[test]
fn greenlets_switch_stacks_below_the_hook() {
    on_each(|python| {
        let mut program = prepared(python);
        let folder = places::python_packages(python.minor());
        if !folder.join("greenlet").is_dir() {
            return skip_case!(python, "no greenlet is here: run `cargo xtask packages`, which needs PyPI");
        }
        case_ran!();
        program.ask(&format!("sys.path.append('{}')", folder.display()));
        assert_eq!(program.evaluate("switched(200)"), 200, "{python}");
        let control = program.attach("*/hooked.py:switched.*.run\n*/hooked.py:switched.*.step\n");
        let calls = program.calls(&control, "assert switched(200) == 200");
        let frames = (0..200).map(|number| number % 50 + 1).sum();
        let expected = [("switched.<locals>.run", frames), ("switched.<locals>.step", 200)];
        assert_eq!(calls, counts(&expected), "{python}");
        // A session that begins and one that ends while greenlets are in the middle.
        program.leave(&control);
        assert_eq!(program.evaluate("switched(200)"), 200, "{python}");
        assert_eq!(control.notices(), 0, "{python}");
    });
}
