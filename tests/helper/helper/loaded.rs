//! A Python that has loaded the image by `ctypes`, and how a session begins in it.

use speed_bump_abi::control_block::{HelperCommand, State};
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{Form, pythons},
    session::obstacle,
    side_by_side, skip,
};

use crate::{control::Control, hits::Hits};

pub(crate) const STUB: &str = "speed_bump_python_entry_nop";

/// The interpreters that can load the image's file: not those in a container.
pub(crate) fn all() -> impl Iterator<Item = &'static PythonBuild> {
    pythons().iter().filter(|python| python.form != Form::Container)
}

/// Those with `sys.monitoring`. The others have tests of their own (helper_hook.rs).
pub(crate) fn monitored() -> impl Iterator<Item = &'static PythonBuild> {
    all().filter(|python| python.minor() >= (3, 12))
}

/// Runs a case on each of these interpreters.
pub(crate) fn on_each(
    interpreters: impl Iterator<Item = &'static PythonBuild>,
    case: impl Fn(&'static PythonBuild) + Sync,
) {
    let interpreters: Vec<_> = interpreters.collect();
    match obstacle() {
        Some(why) => skip!("{why}"),
        None if interpreters.is_empty() => skip!("no Python"),
        None => side_by_side::on_each(&interpreters, |python| case(python)),
    }
}

pub(crate) fn start(python: &PythonBuild) -> Service {
    Service::start(&mut python.command(&places::fixtures().join("calls.py"))).unwrap()
}

/// What the helper's function returns.
pub(crate) fn attach(service: &mut Service, hits: &Hits, control: &Control) -> i64 {
    result(service.ask(&attach_command(hits, control, "say(event='attached', result=")).unwrap())
}

pub(crate) fn attach_command(hits: &Hits, control: &Control, before: &str) -> String {
    let (image, control) = (hits.image.path().display(), control.path());
    format!("{before}ctypes.CDLL('{image}').speed_bump_attach(os.open('{control}', os.O_RDWR)))")
}

pub(crate) fn result(said: Vec<serde_json::Value>) -> i64 {
    said[0]["result"].as_i64().unwrap()
}

pub(crate) fn evaluate(service: &mut Service, expression: &str) -> i64 {
    result(service.ask(&format!("say(event='value', result=int({expression}))")).unwrap())
}

pub(crate) fn attached(python: &PythonBuild, targets: &str) -> (Service, Hits, Control) {
    let mut service = start(python);
    let hits = Hits::at_stub(STUB);
    let control = Control::new(targets, HelperCommand::Run);
    assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
    control.wait_for(State::Active);
    (service, hits, control)
}

pub(crate) fn threads(service: &Service) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap().count()
}

pub(crate) fn descriptors(service: &Service) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count()
}
