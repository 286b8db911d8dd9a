//! The helper's frame evaluation hook, in every CPython from 3.8 to 3.11: which calls it sees, and what it leaves alone.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]

#[path = "helper/control.rs"]
#[allow(dead_code, reason = "shared with the helper's other tests")]
mod control;
#[path = "helper/tally.rs"]
mod tally;

use std::collections::BTreeMap;

use speed_bump_abi::control_block::{Command, Failure, State, notice};
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{Form, pythons},
    session::{obstacle, wait_until},
    skip,
};
use speed_bump_user::inject::image::IMAGE;

use self::{control::Control, tally::Tally};

type Calls = BTreeMap<(String, String), u64>;

/// The interpreters that have such hooks, but for those in a container.
fn hooked() -> impl Iterator<Item = &'static PythonBuild> {
    pythons().iter().filter(|python| python.form != Form::Container && python.minor() < (3, 12))
}

/// Runs a case on each of the interpreters that can have one.
fn on_each(case: impl Fn(&'static PythonBuild)) {
    match (obstacle(), hooked().next()) {
        (Some(why), _) => skip!("{why}"),
        (None, None) => skip!("no CPython from 3.8 to 3.11"),
        (None, Some(_)) => hooked().for_each(case),
    }
}

/// A program with the image loaded.
struct Program {
    service: Service,
    tally: Tally,
    /// Kept as long as the program.
    _image: tempfile::NamedTempFile,
}

impl Program {
    fn start(python: &PythonBuild) -> Self {
        let mut command = python.command(&places::fixtures().join("calls.py"));
        let mut service = Service::start(command.env("PYTHONIOENCODING", "utf-8")).unwrap();
        let image = tempfile::Builder::new().suffix(".so").tempfile().unwrap();
        std::fs::write(image.path(), IMAGE).unwrap();
        let path = image.path().to_str().unwrap();
        service.ask(&format!("HELPER = ctypes.CDLL('{path}')")).unwrap();
        let tally = Tally::of(&mut service, path);
        Self { service, tally, _image: image }
    }

    fn attach(&mut self, targets: &str) -> Control {
        let control = Control::new(targets, Command::Run);
        self.begin(&control);
        control.wait_for(State::Active);
        control
    }

    fn begin(&mut self, control: &Control) {
        let command =
            format!("assert 0 == HELPER.speed_bump_attach(os.open('{}', os.O_RDWR))", control.path());
        self.ask(&command);
    }

    fn leave(&mut self, control: &Control) {
        control.command(Command::Leave);
        control.wait_for(State::Left);
    }

    fn ask(&mut self, statement: &str) -> Vec<serde_json::Value> {
        self.service.ask(statement).unwrap()
    }

    fn evaluate(&mut self, expression: &str) -> i64 {
        self.ask(&format!("say(event='value', result=int({expression}))"))[0]["result"].as_i64().unwrap()
    }

    /// Calls during the statement, by qualified name.
    fn calls(&mut self, control: &Control, statement: &str) -> Vec<(String, u64)> {
        self.tally.take(control);
        self.ask(statement);
        self.tally.take(control).into_iter().map(|((_, name), count)| (name, count)).collect()
    }
}

fn counts(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// The targets that select every function which the program of `matrix` counts, and few others.
const MATRIX: &str = "\
    */matrix/subjects.py:*\n\
    */matrix/suspended.py:*\n\
    */matrix/late.py:*\n\
    <matrix *>:*\n\
    <string>:matrix_*\n\
    !*:*spared*\n";

/// Where its calls differ from what was counted.
fn differences(program: &mut Program, control: &Control, python: &PythonBuild) -> Vec<String> {
    let counted = program.tally.take(control);
    let mut called = Calls::new();
    let mut cases: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for event in program.ask("MATRIX.report()") {
        let text = |field: &str| event[field].as_str().unwrap().to_owned();
        let calls = event["calls"].as_u64().unwrap();
        if calls > 0 {
            let name = match text("name") {
                // Before 3.11 the program cannot find out this name: the function says another, and its code none.
                name if name == "wrapped_by" => format!("wrap.<locals>.{name}"),
                name => name,
            };
            *called.entry((text("file"), name.clone())).or_default() += calls;
            cases.entry((text("file"), name)).or_default().push(text("case"));
        }
    }
    let all: std::collections::BTreeSet<_> = called.keys().chain(counted.keys()).collect();
    all.into_iter()
        .filter(|function| called.get(*function) != counted.get(*function))
        .map(|function| {
            let of = |calls: &Calls| calls.get(function).copied().unwrap_or(0);
            format!(
                "{python}: {function:?}: {} calls, {} counted ({:?})",
                of(&called),
                of(&counted),
                cases.get(function)
            )
        })
        .collect()
}

fn matrix(program: &mut Program) {
    let folder = places::fixtures().join("matrix");
    let (prepare, folder) = ("sys.dont_write_bytecode = True", folder.display());
    program.ask(&format!(
        "{prepare}; sys.path.insert(0, '{folder}'); import service; MATRIX = service.Service()"
    ));
}

#[test]
fn calls_of_every_shape_are_counted_exactly() {
    if !places::fixtures().join("matrix/service.py").is_file() {
        return skip!("no program of every shape: tests/fixtures/matrix/service.py");
    }
    on_each(|python| {
        for warm in [false, true] {
            let mut program = Program::start(python);
            matrix(&mut program);
            if warm {
                program.ask("MATRIX.round()");
            }
            program.ask("MATRIX.reset()");
            let control = program.attach(MATRIX);
            for _ in 0..3 {
                program.ask("MATRIX.round()");
            }
            program.leave(&control);
            let wrong = differences(&mut program, &control, python);
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            // Before 3.11 nothing knows what the lambda is called that collections.namedtuple makes __new__ of.
            let expected = if python.minor() < (3, 11) { notice::NAME_UNSURE } else { 0 };
            assert_eq!(control.notices() & !expected, 0, "{python}");
            program.ask("MATRIX.round()");
            assert!(program.tally.take(&control).is_empty(), "{python}");
        }
    });
}

/// A program that has imported `hooked.py`.
fn prepared(python: &PythonBuild) -> Program {
    let mut program = Program::start(python);
    let folder = places::fixtures();
    program.ask(&format!(
        "sys.dont_write_bytecode = True; sys.path.insert(0, '{}'); import hooked; from hooked import *",
        folder.display()
    ));
    program
}

const TARGETS: &str = "*/calls.py:plain\n*/calls.py:other\n*/hooked.py:down\n";

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
fn a_hook_that_was_there_before_is_asked_and_put_back() {
    on_each(|python| {
        let mut program = prepared(python);
        let frames = "FOREIGN.counter.value";
        program.ask("FOREIGN.begin()");
        if python.minor() == (3, 8) {
            let control = Control::new(TARGETS, Command::Run);
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
        wait_until("the notice", || Ok(control.notices() == notice::HOOK_COVERED)).unwrap();
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.leave(&control);
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}

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
fn threads_that_run_hot_code_are_seen_at_once() {
    on_each(|python| {
        let mut program = prepared(python);
        let begin = "GO = False; ANSWER = []; exec('def hot():\\n    while not GO: plain(1)\\n    for _ in range(1000):                      plain(1)\\n    ANSWER.append(1)', globals()); HOT = threading.Thread(target=hot); HOT.start()";
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
        // The load leaves garbage in cycles. A survey holds it, and so it gets old; without a collection the size goes up
        // and down by what waits for one. The least counts.
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
fn greenlets_switch_stacks_below_the_hook() {
    on_each(|python| {
        let mut program = prepared(python);
        let (major, minor) = python.minor();
        let folder = places::target().join(format!("tools/greenlet-{major}.{minor}"));
        if !folder.is_dir() {
            return skip!("no greenlet: pip{major}.{minor} install --target {} greenlet", folder.display());
        }
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
fn sub_interpreters_go_on_and_are_said() {
    on_each(|python| {
        let mut program = prepared(python);
        program.ask("import _xxsubinterpreters as subs; SUB = subs.create()");
        let control = program.attach(TARGETS);
        program.ask("subs.run_string(SUB, 'f = lambda x: x\\nfor _ in range(1000): f(1)')");
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        wait_until("the notice", || Ok(control.notices() == notice::SUBINTERPRETERS)).unwrap();
        program.leave(&control);
        program.ask("subs.run_string(SUB, 'f(1)'); subs.destroy(SUB)");
        // One that comes later.
        let control = program.attach(TARGETS);
        assert_eq!(control.notices() & notice::SUBINTERPRETERS, 0, "{python}");
        program.ask("SUB = subs.create(); subs.run_string(SUB, 'f = lambda x: x\\nf(1)')");
        wait_until("the notice", || Ok(control.notices() == notice::SUBINTERPRETERS)).unwrap();
        assert_eq!(program.calls(&control, "times(10, plain, 1)"), counts(&[("plain", 10)]), "{python}");
        program.ask("subs.run_string(SUB, 'f(1)'); subs.destroy(SUB)");
        program.leave(&control);
    });
}

#[test]
fn a_debug_build_is_refused() {
    on_each(|python| {
        let mut program = prepared(python);
        // What a debug build has, and no other.
        program.ask("sys.gettotalrefcount = int");
        let control = Control::new(TARGETS, Command::Run);
        program.begin(&control);
        control.wait_for(State::Failed);
        assert!(control.failed_with(Failure::Unsupported), "{}", control.failure());
        assert!(control.failure().contains("Py_DEBUG"), "{}", control.failure());
        assert_eq!(program.evaluate("current() == default()"), 1, "{python}");
    });
}
