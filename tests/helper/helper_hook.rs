//! The helper's frame evaluation hook, in every CPython from 3.8 to 3.11: which calls it sees, and what it
//! leaves alone.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]

mod again;
mod other_tools;
mod program;
mod regions;
mod stack;
mod tally;

use speed_bump_abi::control_block::{Failure, HelperCommand, State, notice};
use speed_bump_testing::{matrix, wait::wait_until};

use self::program::{Program, TARGETS, counts, on_each, prepared};
use crate::control::Control;

/// What the matrix program called.
fn report(program: &mut Program) -> matrix::Report {
    let mut report = matrix::Report::default();
    for event in program.ask("MATRIX.report()") {
        let text = |field: &str| event[field].as_str().unwrap().to_owned();
        let name = match text("name") {
            // Before 3.11 the program cannot find out this name: the function says another, and its code
            // none.
            name if name == "wrapped_by" => format!("wrap.<locals>.{name}"),
            name => name,
        };
        report.add((text("file"), name), text("case"), event["calls"].as_u64().unwrap());
    }
    report
}

fn with_matrix(program: &mut Program) {
    let script = matrix::script();
    let (prepare, folder) = ("sys.dont_write_bytecode = True", script.parent().unwrap().display());
    program.ask(&format!(
        "{prepare}; sys.path.insert(0, '{folder}'); import service; MATRIX = service.Service()"
    ));
}

#[test]
fn calls_of_every_shape_are_counted_exactly() {
    on_each(|python| {
        for warm in [false, true] {
            let mut program = Program::start(python);
            with_matrix(&mut program);
            if warm {
                program.ask("MATRIX.round()");
            }
            program.ask("MATRIX.reset()");
            let control = program.attach(matrix::TARGETS);
            for _ in 0..3 {
                program.ask("MATRIX.round()");
            }
            program.leave(&control);
            let counted = program.tally.take(&control);
            let wrong = report(&mut program).differences(&counted);
            assert!(wrong.is_empty(), "{python}:\n{}", wrong.join("\n"));
            // Before 3.11 nothing knows what the lambda is called that collections.namedtuple makes __new__
            // of.
            let expected = if python.minor() < (3, 11) { notice::NAME_UNSURE } else { 0 };
            assert_eq!(control.notices() & !expected, 0, "{python}");
            program.ask("MATRIX.round()");
            assert!(program.tally.take(&control).is_empty(), "{python}");
        }
    });
}

#[test]
fn a_hook_is_there_only_during_a_session() {
    on_each(|python| {
        let mut program = prepared(python);
        for _ in 0..3 {
            let control = program.attach(TARGETS);
            assert_eq!(program.evaluate("current() != default()"), 1, "{python}");
            assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
            program.leave(&control);
            assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
            assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[]), "{python}");
            assert_eq!(control.notices(), 0, "{python}");
        }
    });
}

#[test]
fn threads_that_run_hot_code_are_seen_at_once() {
    on_each(|python| {
        let mut program = prepared(python);
        let begin = "GO = False; ANSWER = []; exec('def hot():\\n    while not GO: plain(1)\\n    for _ in \
                     range(1000):                      plain(1)\\n    ANSWER.append(1)', globals()); HOT = \
                     threading.Thread(target=hot); HOT.start()";
        program.ask(begin);
        let control = program.attach(TARGETS);
        program.ask("import time; time.sleep(0.1)");
        let running = program.calls(&control, "time.sleep(0.1)");
        assert!(running.len() == 1 && running[0].1 > 100, "{python}: {running:?}");
        program.leave(&control);
        program.ask("GO = True; HOT.join()");
    });
}

/// Sessions that come and go; `cargo xtask soak` has more of them.
const ROUNDS: usize = 80;

#[test]
fn sessions_come_and_go_under_load() {
    on_each(|python| {
        let mut program = prepared(python);
        program.ask("import gc; load(4)");
        let resources = |program: &Program| {
            let pid = program.service.pid();
            let entries = |name: &str| std::fs::read_dir(format!("/proc/{pid}/{name}")).unwrap().count();
            let mappings = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
            let images = mappings.lines().filter(|line| line.contains("speed-bump")).count();
            (entries("task"), entries("fd"), images)
        };
        let resident = |program: &mut Program| {
            program.evaluate("(gc.collect(), int(open('/proc/self/statm').read().split()[1]) * 4096)[1]")
        };
        // The load leaves garbage in cycles. A survey holds it, and so it gets old; without a collection the
        // size goes up and down by what waits for one. The least counts.
        let (mut before, mut sizes) = (None, [i64::MAX; 2]);
        for round in 0..ROUNDS {
            let control = program.attach("*/hooked.py:*\n<string>:*\n");
            if round % 10 == 0 {
                control.retarget("*/hooked.py:down\n");
                control.wait_for_generation();
            }
            program.leave(&control);
            let size = &mut sizes[usize::from(round >= ROUNDS / 2)];
            *size = resident(&mut program).min(*size).max(if round < 20 { i64::MAX } else { 0 });
            if round == ROUNDS / 4 {
                wait_until("the thread's end", || Ok(resources(&program).0 == 5)).unwrap();
                before = Some(resources(&program));
            }
        }
        wait_until("the thread's end", || Ok(resources(&program).0 == 5)).unwrap();
        assert_eq!(Some(resources(&program)), before, "{python}");
        let grown = sizes[1] - sizes[0];
        assert!(grown < 4 << 20, "{python}: {grown} bytes");
        assert!(program.evaluate("unload()") > 10, "{python}");
        assert!(program.service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn tracers_see_what_they_see_without_a_hook() {
    on_each(|python| {
        let mut program = prepared(python);
        let ask = "say(event='seen', seen=traced(plain))";
        let without = program.ask(ask);
        assert!(without[0]["seen"].as_array().unwrap().len() >= 4, "{python}");
        let control = program.attach(TARGETS);
        assert_eq!(program.ask(ask), without, "{python}");
        assert_eq!(program.calls(&control, "traced(plain)"), counts(&[("plain", 1)]), "{python}");
    });
}

#[test]
fn a_forked_child_takes_the_hook_out_when_the_session_is_over() {
    on_each(|python| {
        let mut program = prepared(python);
        let control = program.attach(TARGETS);
        program.ask("child(Forked)");
        let calls = "CHILD.ask('times(10, plain, 1)')";
        assert_eq!(program.calls(&control, calls), counts(&[("plain", 10)]), "{python}");
        control.retarget("*/calls.py:other\n");
        control.wait_for_generation();
        let both = "CHILD.ask('times(10, plain, 1); times(5, other, 1)')";
        assert_eq!(program.calls(&control, both), counts(&[("other", 5)]), "{python}");
        program.ask("CHILD.ask('assert current() != default()')");
        program.leave(&control);
        assert_eq!(program.calls(&control, both), counts(&[]), "{python}");
        program.ask("CHILD.ask('assert current() == default()')");
    });
}

#[test]
fn sub_interpreters_are_covered_but_for_those_with_another_hook() {
    on_each(|python| {
        let mut program = prepared(python);
        program.ask("from subs import *; SUB = begin()");
        let control = program.attach("<s*>:there\n*/calls.py:plain\n");
        let calls = "inside(SUB, 'for _ in range(1000): there(1)')";
        assert_eq!(program.calls(&control, calls), counts(&[("there", 1000)]), "{python}");
        assert_eq!(control.notices(), 0, "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current(newest()) == default()"), 1, "{python}");
        program.ask("end(SUB)");

        program.ask("SUB = begin(); FOREIGN.begin(newest())");
        let control = program.attach("<s*>:there\n*/calls.py:plain\n");
        let both = format!("{calls}; times(10, plain, 1)");
        assert_eq!(program.calls(&control, &both), counts(&[("plain", 10)]), "{python}");
        assert_eq!(control.notices(), notice::SUBINTERPRETERS, "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current(newest()) == FOREIGN.address"), 1, "{python}");
        program.ask("FOREIGN.end(newest()); end(SUB)");
    });
}

/// The first releases of 3.11 evaluate them without a look at the hook, once they are hot.
#[test]
fn subscripts_of_sub_interpreters_are_counted_exactly() {
    on_each(|python| {
        let mut program = prepared(python);
        let define = "class Box:\\n def __getitem__(self, key): return key\\ndef hot(box, count):\\n \
                      for key in range(count): box[key]\\nBOX = Box(); hot(BOX, 1000)";
        program.ask(&format!("from subs import *; SUB = begin(); inside(SUB, '{define}')"));
        for session in 0..2 {
            let control = program.attach("<s*>:Box.*\n");
            let counted = program.calls(&control, "inside(SUB, 'hot(BOX, 500)')");
            assert_eq!(counted, counts(&[("Box.__getitem__", 500)]), "{python}, {session}");
            program.leave(&control);
        }
        program.ask("end(SUB)");
    });
}

/// The main interpreter's hook passes frames on to another tool's, which is not there in the others.
#[test]
fn sub_interpreters_of_one_with_another_hook_are_said() {
    on_each(|python| {
        // There no hook can be set after another.
        if python.minor() == (3, 8) {
            return;
        }
        let mut program = prepared(python);
        program.ask("from subs import *; SUB = begin(); FOREIGN.begin()");
        let control = program.attach("<s*>:there\n*/calls.py:plain\n");
        let both = "inside(SUB, 'there(1)'); times(10, plain, 1)";
        assert_eq!(program.calls(&control, both), counts(&[("plain", 10)]), "{python}");
        assert_eq!(control.notices(), notice::SUBINTERPRETERS, "{python}");
        program.leave(&control);
        program.ask("FOREIGN.end(); end(SUB)");
    });
}

#[test]
fn a_debug_build_is_refused() {
    on_each(|python| {
        let mut program = prepared(python);
        // What a debug build has, and no other.
        program.ask("sys.gettotalrefcount = int");
        let control = Control::new(TARGETS, HelperCommand::Run);
        program.begin(&control);
        control.wait_for(State::Failed);
        assert!(control.failed_with(Failure::Unsupported), "{}", control.failure());
        assert!(control.failure().contains("Py_DEBUG"), "{}", control.failure());
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}
