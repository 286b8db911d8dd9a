//! A sweep begins one session: it takes functions up and drops them there as it learns, and detaches once.

#![allow(clippy::unwrap_used)]

use crate::planted::planted_tiny;

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
