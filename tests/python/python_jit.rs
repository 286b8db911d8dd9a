//! Code that CPython's own JIT has compiled: calls in it are counted and delayed like others, from the attach
//! on, and it is compiled again when the session is over.

#![allow(clippy::unwrap_used)]

use speed_bump_testing::{
    Attached, PythonBuild, Service, exact::Subject, places, pythons, pythons::Form, session::obstacle, skip,
    wait::wait_until,
};

/// Rounds of the loop, of which all but the first thousands are compiled.
const ROUNDS: u64 = 100_000;

/// Runs a case on each interpreter that has a JIT, with a script and the JIT on.
fn on_each(script: &str, case: impl Fn(&PythonBuild, &mut Service)) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let has_jit = |python: &&PythonBuild| python.has_jit && python.form != Form::Container;
    let found: Vec<_> = pythons().iter().filter(has_jit).collect();
    if found.is_empty() {
        return skip!("no Python of this machine has a JIT compiler: run `cargo xtask pythons`");
    }
    for python in found {
        let mut command = python.command(&places::fixtures().join(script));
        let mut service = Service::start(command.env("PYTHON_JIT", "1")).unwrap();
        case(python, &mut service);
    }
}

/// Calls that the program has counted itself.
fn calls(service: &mut Service) -> u64 {
    service.ask("count").unwrap()[0]["calls"].as_u64().unwrap()
}

/// How many of the rounds ran as compiled code.
fn compiled(service: &mut Service) -> u64 {
    service.ask(&format!("call {ROUNDS}")).unwrap()[0]["compiled"].as_u64().unwrap()
}

#[test]
fn a_loop_that_runs_compiled_is_counted_from_the_attach_on() {
    on_each("compiled.py", |python, service| {
        assert_eq!(service.ready()["jit"], true, "{python}");
        compiled(service);
        assert!(compiled(service) > ROUNDS / 2, "{python}: the loop is not compiled");
        for delay in ["0", "10us"] {
            service.ask("begin").unwrap();
            let begun = calls(service);
            wait_until("the loop runs", || Ok(calls(service) > begun + ROUNDS)).unwrap();
            let before = calls(service);
            let flags = ["--entry", "helper", "--delay", delay];
            let session = Attached::start(service.pid(), "*/compiled.py:called\n", &flags).unwrap();
            let attached = calls(service);
            wait_until("the loop runs on", || Ok(calls(service) > attached + 2_000)).unwrap();
            let last = calls(service);
            let ended = session.stop().unwrap();
            let after = calls(service);
            service.ask("end").unwrap();
            let (counted, delayed) = ended.counts(0);
            let told =
                format!("{python}, {delay}: {counted} counted, {delayed} delayed: {}", ended.target(0));
            assert!((last - attached..=after - before).contains(&counted), "{told}");
            assert!(delay == "0" || delayed >= last - attached, "{told}");
        }
        // Left as it was.
        compiled(service);
        assert!(compiled(service) > ROUNDS / 2, "{python}: the loop is compiled no more");
    });
}

#[test]
fn calls_of_compiled_code_are_counted_exactly() {
    on_each("compiled.py", |python, service| {
        compiled(service);
        assert!(compiled(service) > ROUNDS / 2, "{python}: the loop is not compiled");
        for turn in 0..3 {
            let session =
                Attached::start(service.pid(), "*/compiled.py:called\n", &["--delay", "1us"]).unwrap();
            compiled(service);
            let ended = session.stop().unwrap();
            assert_eq!(ended.counts(0), (ROUNDS, ROUNDS), "{python}, turn {turn}");
            compiled(service);
        }
    });
}

#[test]
fn delays_are_exact_with_the_jit_on() {
    on_each("exact.py", |python, service| {
        let attach = |service: &mut Service, delay: &str| {
            Attached::start(service.pid(), "*/exact.py:worked\n", &["--entry", "helper", "--delay", delay])
        };
        let mut subject = Subject { service, function: "worked", attach };
        subject.short().unwrap().assert_exact(&format!("{python}, a short delay"));
        subject.long(1_000_000).unwrap().assert_exact(&format!("{python}, a long delay"));
    });
}
