//! The helper's frame evaluation hook, in every CPython from 3.8 to 3.11: which calls it sees, and what it leaves alone.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]

#[path = "helper/control.rs"]
#[allow(dead_code, reason = "shared with the helper's other tests")]
mod control;
#[path = "helper/tally.rs"]
mod tally;

use std::collections::BTreeMap;

use speed_bump_abi::control_block::{Command, State};
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{Form, pythons},
    session::{obstacle, wait_until},
    skip,
};
use speed_bump_user::inject::image::IMAGE;

use self::{control::Control, tally::Tally};

pub(crate) fn dev() -> Vec<u8> {
    std::env::var_os("DEV").map_or_else(|| IMAGE.to_vec(), |p| std::fs::read(p).unwrap())
}

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
    image: tempfile::NamedTempFile,
    tally: Tally,
}

impl Program {
    fn start(python: &PythonBuild) -> Self {
        let mut command = python.command(&places::fixtures().join("calls.py"));
        let mut service = Service::start(command.env("PYTHONIOENCODING", "utf-8")).unwrap();
        let image = tempfile::Builder::new().suffix(".so").tempfile().unwrap();
        std::fs::write(image.path(), dev()).unwrap();
        let path = image.path().to_str().unwrap();
        service.ask(&format!("HELPER = ctypes.CDLL('{path}')")).unwrap();
        let tally = Tally::of(&mut service, path);
        Self { service, image, tally }
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
            assert_eq!(control.notices(), 0, "{python}");
            program.ask("MATRIX.round()");
            assert!(program.tally.take(&control).is_empty(), "{python}");
        }
    });
}
