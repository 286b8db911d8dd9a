//! Made-up profiles.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::{
    sampling::profile::{StackSeen, ThreadSeen},
    units::{Nanos, Pid},
};

const SERVICE: &str = "/srv/app.py";
const LIBRARY: &str = "/usr/lib/python3.11/json/encoder.py";

fn thread() -> ThreadOf {
    let pid = Pid::new(7).unwrap();
    ThreadOf { process: pid, thread: pid }
}

/// The files and names of functions, the innermost first; samples of work; and samples of waits.
type Stack<'a> = (&'a [(&'a str, &'a str)], u64, u64);

fn profile(stacks: &[Stack<'_>]) -> Profile {
    let mut profile = Profile { ticks: 1_000, span: Nanos(10_000_000_000), ..Profile::default() };
    for (stack, works, waits) in stacks {
        let mut functions = Vec::new();
        for (depth, (file, name)) in stack.iter().rev().enumerate() {
            let known = profile.functions.iter().position(|of| of.name == *name);
            let place = known.unwrap_or_else(|| {
                profile.functions.push(function(file, name, Some(1), depth as u32));
                profile.functions.len() - 1
            });
            functions.insert(0, place as u32);
        }
        let own = *functions.first().unwrap() as usize;
        profile.functions[own].own += works + waits;
        let waits = BTreeMap::from([("sleep", *waits)]);
        profile.stacks.push(StackSeen { thread: thread(), functions, works: *works, waits });
    }
    let seen = ThreadSeen { ticks: 1_000, ..ThreadSeen::default() };
    profile.threads.insert(thread(), seen);
    profile
}

fn function(file: &str, name: &str, line: Option<u32>, depth: u32) -> FunctionSeen {
    FunctionSeen {
        file: file.into(),
        name: name.to_owned(),
        line,
        is_qualified: true,
        depth,
        ..FunctionSeen::default()
    }
}

fn names(profile: &Profile, loops: &[&str]) -> Vec<String> {
    let place = |name: &&str| profile.functions.iter().position(|of| of.name == *name).unwrap();
    let loops: Vec<usize> = loops.iter().map(place).collect();
    let chosen = Code::new(profile).chosen(profile, 0.01, &loops);
    chosen.functions.iter().map(|place| profile.functions[*place].name.clone()).collect()
}

const MAIN: (&str, &str) = (SERVICE, "main");
const HANDLE: (&str, &str) = (SERVICE, "handle");
const TO_JSON: (&str, &str) = (SERVICE, "to_json");
const ENCODE: (&str, &str) = (LIBRARY, "JSONEncoder.encode");
const ITERENCODE: (&str, &str) = (LIBRARY, "_iterencode");
const SERVE: (&str, &str) = ("/usr/lib/python3.11/socketserver.py", "BaseServer.serve_forever");
const SELECT: (&str, &str) = ("/usr/lib/python3.11/selectors.py", "EpollSelector.select");

/// The encoder's time is that of `to_json`, and nothing in it is asked about.
#[test]
fn what_a_library_does_for_the_service_belongs_to_the_service() {
    let profile = profile(&[
        (&[ITERENCODE, ENCODE, TO_JSON, HANDLE], 600, 0),
        (&[ENCODE, TO_JSON, HANDLE], 100, 0),
        (&[HANDLE], 50, 0),
    ]);
    assert_eq!(names(&profile, &[]), ["to_json", "handle"]);
}

/// The server's loop is below no function of the service that returns.
#[test]
fn a_library_outside_of_the_service_comes_second() {
    let profile = profile(&[
        (&[TO_JSON, HANDLE, SERVE, MAIN], 30, 0),
        (&[SERVE, MAIN], 60, 0),
        (&[SELECT, SERVE, MAIN], 20, 400),
        (&[HANDLE, SERVE, MAIN], 40, 300),
    ]);
    let code = Code::new(&profile);
    let always = code.always_there(&profile, 0.01);
    let main = profile.functions.iter().position(|of| of.name == "main").unwrap();
    assert_eq!(always, [main]);
    // `select` waits: nobody could make it free.
    assert_eq!(names(&profile, &["main"]), ["handle", "to_json", "BaseServer.serve_forever"]);
    // If `main` is called again and again, all of this is its own.
    assert_eq!(names(&profile, &[]), ["main", "handle", "to_json"]);
}

/// An encoder that a framework calls too is nobody's own: then the framework's function has its time.
#[test]
fn a_library_that_the_service_calls_too_is_not_asked_about() {
    let render = ("/venv/lib/python3.11/site-packages/starlette/responses.py", "JSONResponse.render");
    let profile = profile(&[(&[ENCODE, TO_JSON], 100, 0), (&[ENCODE, render], 100, 0), (&[render], 20, 0)]);
    assert_eq!(names(&profile, &[]), ["to_json", "JSONResponse.render"]);
}

/// Many small functions are the time of their caller.
#[test]
fn functions_with_too_little_time_count_to_their_callers() {
    let small: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    let stacks: Vec<[(&str, &str); 2]> =
        small.iter().map(|name| [(SERVICE, name.as_str()), HANDLE]).collect();
    let stacks: Vec<Stack<'_>> = stacks.iter().map(|stack| (&stack[..], 4, 0)).collect();
    assert_eq!(names(&profile(&stacks), &[]), ["handle"]);
}

#[test]
fn code_within_a_function_is_part_of_it() {
    let within = [
        "handle.<locals>.<listcomp>",
        "handle.<locals>.<genexpr>",
        "handle.<locals>.<lambda>",
        "K.f.<locals>.<dictcomp>",
        "K.f.<locals>.<setcomp>",
        "<module>",
        "<listcomp>",
    ];
    for name in within {
        assert!(!is_function(&function(SERVICE, name, Some(1), 0)), "{name}");
        let profile = profile(&[(&[(SERVICE, name), HANDLE], 100, 0)]);
        assert_eq!(names(&profile, &[]), ["handle"], "{name}");
    }
    for name in ["handle", "K.handle", "outer.<locals>.inner", "f.<locals>.<lambda>.<locals>.g", "<lambda>"] {
        assert!(is_function(&function(SERVICE, name, Some(1), 0)), "{name}");
    }
    // Before 3.11 a lambda's name does not tell where it stands.
    let lambda = FunctionSeen { is_qualified: false, ..function(SERVICE, "<lambda>", Some(1), 0) };
    assert!(!is_function(&lambda));
}

/// Native time of a thread that executes Python is in the Python functions already.
#[test]
fn native_code_is_asked_about_where_no_python_calls_it() {
    let of = |name: &str, thread: ThreadOf| FunctionSeen {
        own: 100,
        running: Nanos(1_000_000_000),
        threads: BTreeMap::from([(thread, 100)]),
        ..function("/srv/lib.so", name, None, u32::MAX)
    };
    let mut profile = profile(&[(&[HANDLE], 100, 0)]);
    let other = ThreadOf { thread: Pid::new(8).unwrap(), ..thread() };
    profile.functions.extend([of("within_python", thread()), of("alone", other)]);
    profile.clock = Some(crate::sampling::profile::ClockSeen { rate: 100, ..Default::default() });
    assert_eq!(names(&profile, &[]), ["handle", "alone"]);
}
