//! A program of an interpreter with frame evaluation hooks, with the image loaded and every call counted.

use speed_bump_abi::control_block::{HelperCommand, State};
use speed_bump_session::inject::image::IMAGE;
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{Form, pythons},
    session::obstacle,
    side_by_side, skip,
};

use super::tally::Tally;
use crate::control::Control;

/// The interpreters that have such hooks, but for those in a container.
fn hooked() -> impl Iterator<Item = &'static PythonBuild> {
    pythons().iter().filter(|python| python.form != Form::Container && python.minor() < (3, 12))
}

/// Runs a case on each of the interpreters that can have one.
pub(crate) fn on_each(case: impl Fn(&'static PythonBuild) + Sync) {
    let interpreters: Vec<_> = hooked().collect();
    match obstacle() {
        Some(why) => skip!("{why}"),
        None if interpreters.is_empty() => skip!("no CPython from 3.8 to 3.11"),
        None => side_by_side::on_each(&interpreters, |python| case(python)),
    }
}

/// A program with the image loaded.
pub(crate) struct Program {
    pub(crate) service: Service,
    pub(crate) tally: Tally,
    /// Kept as long as the program.
    _image: tempfile::NamedTempFile,
}

impl Program {
    pub(crate) fn start(python: &PythonBuild) -> Self {
        let mut command = python.command(&places::fixtures().join("calls.py"));
        let mut service = Service::start(command.env("PYTHONIOENCODING", "utf-8")).unwrap();
        let image = tempfile::Builder::new().suffix(".so").tempfile().unwrap();
        std::fs::write(image.path(), IMAGE).unwrap();
        let path = image.path().to_str().unwrap();
        service.ask(&format!("HELPER = ctypes.CDLL('{path}')")).unwrap();
        let tally = Tally::install(&mut service, path);
        Self { service, tally, _image: image }
    }

    pub(crate) fn attach(&mut self, targets: &str) -> Control {
        let control = Control::new(targets, HelperCommand::Run);
        self.begin(&control);
        control.wait_for(State::Active);
        control
    }

    pub(crate) fn begin(&mut self, control: &Control) {
        let command =
            format!("assert 0 == HELPER.speed_bump_attach(os.open('{}', os.O_RDWR))", control.path());
        self.ask(&command);
    }

    pub(crate) fn leave(&mut self, control: &Control) {
        control.command(HelperCommand::Leave);
        control.wait_for(State::Left);
    }

    pub(crate) fn ask(&mut self, statement: &str) -> Vec<serde_json::Value> {
        self.service.ask(statement).unwrap()
    }

    pub(crate) fn evaluate(&mut self, expression: &str) -> i64 {
        self.ask(&format!("say(event='value', result=int({expression}))"))[0]["result"].as_i64().unwrap()
    }

    /// Calls during the statement, by qualified name.
    pub(crate) fn calls(&mut self, control: &Control, statement: &str) -> Vec<(String, u64)> {
        self.tally.take(control);
        self.ask(statement);
        self.tally.take(control).into_iter().map(|((_, name), count)| (name, count)).collect()
    }
}

pub(crate) fn counts(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// A program that has imported `hooked.py`.
pub(crate) fn prepared(python: &PythonBuild) -> Program {
    let mut program = Program::start(python);
    let folder = places::fixtures();
    program.ask(&format!(
        "sys.dont_write_bytecode = True; sys.path.insert(0, '{}'); import hooked; from hooked import *",
        folder.display()
    ));
    program
}

pub(crate) const TARGETS: &str = "*/calls.py:plain\n*/calls.py:other\n*/hooked.py:down\n";
