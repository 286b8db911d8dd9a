//! A sweep begins one session: it takes functions up and drops them there as it learns, and detaches once.

#![allow(clippy::unwrap_used)]

use speed_bump_testing::{Service, places, pythons, session::obstacle, skip};

use crate::{
    planted::{Planted, planted_tiny},
    share::Share,
};

/// How often a sweep has brought the helper into the service and detached, and how many of its sessions were
/// begun.
fn sweep_attaches_once(kind: &str, arguments: &[&str]) {
    let Some(service) = planted_tiny(kind) else { return };
    let arguments = [&["--for", "15s", "-v"], arguments].concat();
    let run = service.sweep(&arguments);
    // What it finds on a busy machine is another test's business.
    assert!(run.stderr.contains("census: "), "{kind} {arguments:?}: {}", run.stderr);
    let count = |text: &str| run.stderr.lines().filter(|line| line.contains(text)).count();
    let counted = (count("the helper is in process"), count(": detached in"));
    assert_eq!(counted, (1, 1), "{kind} {arguments:?}: helpers brought in, and detached: {}", run.stderr);
}

#[test]
fn a_sweep_without_flags_attaches_once() {
    sweep_attaches_once("training", &[]);
}

#[test]
fn a_sweep_of_named_functions_attaches_once() {
    sweep_attaches_once("shadow", &["-t", "*/planted.py:render", "--progress", "*/planted.py:unit"]);
}

#[test]
fn a_sweep_that_finds_functions_by_a_named_unit_attaches_once() {
    sweep_attaches_once("shadow", &["--progress", "*/planted.py:unit"]);
}

#[test]
fn a_sweep_of_requests_on_sockets_attaches_once() {
    sweep_attaches_once("http", &["--sockets"]);
}

#[test]
fn a_sweep_of_a_functions_own_latency_attaches_once() {
    sweep_attaches_once("shadow", &["-t", "*/planted.py:render", "--latency", "*/planted.py:score"]);
}

/// Before 3.11 a function may be known by its plain name alone, so that some of the lines that are tried for
/// the unit of work select nothing: those are no business of the user's.
#[test]
fn what_was_tried_as_the_unit_of_work_is_not_told_of() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = pythons().iter().find(|python| python.minor() < (3, 11)) else {
        return skip!("no CPython from 3.8 to 3.10");
    };
    let script = places::fixtures().join("planted.py");
    let service = Service::start(python.command(&script).arg("training")).unwrap();
    let service = Planted::new(service, Share::tiny());
    let run = service.sweep(&["--for", "15s"]);
    assert!(run.stderr.contains("the unit of work was chosen: a call of step"), "{}", run.stderr);
    let tried = |line: &&str| line.contains("selects nothing") && line.contains("threading.py");
    assert_eq!(run.stderr.lines().find(tried), None, "{}", run.stderr);
}
