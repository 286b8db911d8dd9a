//! Python functions through perf trampolines: exact counts for every shape of function, on every interpreter
//! that has them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, process::Command};

use speed_bump_testing::{
    Attached, PythonBuild, Service, case_ran,
    exact::{self, Subject},
    pythons::Form,
    session::obstacle,
    skip, skip_case,
};
use speed_bump_tests::calls::{counts, one_of_each_version, script, start, with_trampolines};

const PERF: [&str; 2] = ["-X", "perf"];

/// Runs a case on every interpreter with trampolines.
fn on_each(case: impl Fn(&PythonBuild)) {
    on_each_of(&with_trampolines().collect::<Vec<_>>(), case);
}

/// Runs a case on each of these interpreters with trampolines.
fn on_each_of(pythons: &[&PythonBuild], case: impl Fn(&PythonBuild)) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if pythons.is_empty() {
        return skip!("no Python has perf trampolines here: run `cargo xtask pythons`");
    }
    pythons.iter().for_each(|python| case(python));
}

fn attach(service: &Service, targets: &str, flags: &[&str]) -> Attached {
    let flags: Vec<&str> = ["--entry", "perf-map"].into_iter().chain(flags.iter().copied()).collect();
    Attached::start(service.pid(), targets, &flags).unwrap()
}

/// What is run once before the attach, what is run after it, and which functions it calls how often.
type Case = (&'static str, &'static str, &'static [(&'static str, u64)]);

#[test]
fn every_shape_of_function_is_counted_exactly() {
    const CASES: &[Case] = &[
        ("plain(1)", "times(100, plain, 1)", &[("plain", 100)]),
        // Calls from bytecode, which CPython specialises after a few rounds.
        ("other(1)", "for _ in range(3000): other(1)", &[("other", 3000)]),
        ("outer(1)", "times(30, outer, 1)", &[("outer", 30), ("outer.<locals>.inner", 30)]),
        ("double(1)", "times(40, double, 1)", &[("<lambda>", 40)]),
        ("recursive(1)", "times(5, recursive, 9)", &[("recursive", 50)]),
        ("caught()", "times(6, caught)", &[("caught", 6), ("failing", 6)]),
        ("Sub().m()", "times(50, Sub(1).m)", &[("Sub.m", 50), ("K.m", 50)]),
        (
            "K.class_method()",
            "times(60, K.class_method); times(7, INSTANCE.class_method)",
            &[("K.class_method", 67)],
        ),
        ("K.static_method()", "times(70, K.static_method)", &[("K.static_method", 70)]),
        ("INSTANCE.value", "for _ in range(80): INSTANCE.value", &[("K.value", 80)]),
        ("late(1)", "in_threads(10, 200, late, 1)", &[("late", 2000)]),
    ];
    on_each(|python| {
        let mut service = start(python, &PERF);
        for (before, ..) in CASES {
            service.ask(before).unwrap();
        }
        let session = attach(&service, "*/calls.py:*\n!*:times\n", &["--delay", "1us"]);
        for (_, after, _) in CASES {
            service.ask(after).unwrap();
        }
        let ended = session.stop().unwrap();
        for (_, after, expected) in CASES {
            for (name, calls) in *expected {
                assert_eq!(counts(&ended, name), (*calls, *calls), "{python}: {name} by `{after}`");
            }
        }
        assert_eq!(counts(&ended, "times"), (0, 0), "{python}: excluded");
        assert_eq!(ended.target(0)["entry"], "perf-map", "{python}");
        assert_eq!(ended.report["warnings"], serde_json::json!([]), "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// What the helper is in for is signals alone: it knows no functions.
#[test]
fn the_helper_delays_what_the_perf_map_tells() {
    on_each(|python| {
        let mut service = start(python, &PERF);
        service.ask("plain(1)").unwrap();
        let flags = ["--strict", "--engine", "signal", "--delay", "200us"];
        let session = attach(&service, "*/calls.py:plain\n", &flags);
        service.ask("times(20, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended, "plain"), (20, 20), "{python}: {}", ended.run.stderr);
        assert_eq!(ended.target(0)["engine"], "signal", "{python}");
        assert!(!ended.run.stderr.contains("selects nothing"), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn delays_are_exact() {
    on_each_of(&one_of_each_version(with_trampolines()), |python| {
        let mut service = exact::start_python(python, &PERF).unwrap();
        let by = |engine: &'static str| {
            move |service: &mut Service, delay: &str| {
                let flags = ["--entry", "perf-map", "--engine", engine, "--delay", delay];
                Attached::start(service.pid(), "*/exact.py:worked\n", &flags)
            }
        };
        let mut subject = Subject { service: &mut service, function: "worked", attach: by("bpf") };
        subject.short().unwrap().assert_exact(&format!("{python}, a short delay"));
        subject.long(1_000_000).unwrap().assert_exact(&format!("{python}, a long delay"));
        let mut subject = Subject { service: &mut service, function: "worked", attach: by("signal") };
        match subject.short_with_signal().unwrap() {
            Some(measured) => measured.assert_exact(&format!("{python}, a short delay, signal")),
            None => skip_case!(python, "a trap takes too long for a short delay with a signal"),
        }
        subject.long(2_000_000).unwrap().assert_exact(&format!("{python}, a long delay, signal"));
        case_ran!();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn calls_from_c_are_counted_exactly() {
    on_each(|python| {
        let mut service = start(python, &PERF);
        service.ask("plain(1); other(1); INSTANCE.m()").unwrap();
        let session = attach(&service, "*/calls.py:plain\n*/calls.py:other\n*/calls.py:K.m\n", &[]);
        service.ask("list(map(plain, range(500)))").unwrap();
        service.ask("sorted(range(300), key=other)").unwrap();
        service.ask("import functools; times(20, functools.partial(K.m, INSTANCE))").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!([0, 1, 2].map(|i| ended.counts(i)), [(500, 500), (300, 300), (20, 20)], "{python}");
    });
}

#[test]
fn initialisers_are_counted_where_the_release_makes_them_visible() {
    on_each(|python| {
        let mut service = start(python, &PERF);
        service.ask("K()").unwrap();
        let session = attach(&service, "*/calls.py:K.__init__\n", &[]);
        // CPython specialises neither a call from C nor one that leaves a default to be filled in.
        service.ask("list(map(K, range(100)))").unwrap();
        service.ask("for _ in range(1000): K()").unwrap();
        assert_eq!(session.stop().unwrap().counts(0), (1100, 1100), "{python}");

        let session = attach(&service, "*/calls.py:K.__init__\n", &[]);
        service.ask("for _ in range(1000): K(1)").unwrap();
        let (calls, delayed) = session.stop().unwrap().counts(0);
        // The free-threaded 3.13 does not specialise (PEP 703 came without that at first).
        if python.minor() == (3, 13) && !python.free_threaded {
            // A specialised K(1) enters __init__ past its trampoline. Where this begins to fail, a release
            // shows them: then say so in the reference.
            assert!((1..1000).contains(&calls) && delayed == calls, "{python}: {calls}, {delayed}");
        } else {
            assert_eq!((calls, delayed), (1000, 1000), "{python}");
        }
    });
}

#[test]
fn a_generator_counts_once_for_every_resume() {
    on_each(|python| {
        let mut service = start(python, &PERF);
        service.ask("list(numbers(1))").unwrap();
        let session = attach(&service, "*/calls.py:numbers\n", &[]);
        service.ask("times(10, list, ()); list(numbers(20))").unwrap();
        let (calls, delayed) = session.stop().unwrap().counts(0);
        // Each value is a resume. Whether the call that makes the generator and its end count too differs
        // between releases.
        assert!((20..=22).contains(&calls) && delayed == calls, "{python}: {calls}");
    });
}

#[test]
fn code_from_strings_is_covered_by_its_made_up_file() {
    on_each(|python| {
        let mut service = start(python, &PERF);
        service.ask(r#"exec("def from_string(x):\n    return x"); from_string(1)"#).unwrap();
        service
            .ask(r#"exec(compile("def elsewhere(x): return x", "a b: c", "exec")); elsewhere(1)"#)
            .unwrap();
        let session = attach(&service, "<string>:from_string\na b*:elsewhere\n", &[]);
        service.ask("times(25, from_string, 1); times(26, elsewhere, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (25, 25), "{python}");
        assert_eq!(ended.target(0)["functions"][0]["file"], "<string>", "{python}");
        let odd = format!("{python}: {:?}", ended.functions(1));
        assert_eq!(ended.counts(1), (26, 26), "{odd}");
    });
}

#[test]
fn a_function_that_is_first_called_after_the_attach_is_covered_from_then_on() {
    on_each(|python| {
        let mut service = start(python, &PERF);
        let session = attach(&service, "*/calls.py:late\n<string>:defined_late\n", &["-vv"]);
        service.ask("late(1)").unwrap();
        session.wait_for("late is covered").unwrap();
        service.ask("times(100, late, 1)").unwrap();
        service.ask(r#"exec("def defined_late(x):\n    return x"); defined_late(1)"#).unwrap();
        session.wait_for("defined_late is covered").unwrap();
        service.ask("in_threads(4, 50, defined_late, 1)").unwrap();
        let ended = session.stop().unwrap();
        // The first call may be seen too: its line is in the map just before it enters.
        let (calls, delayed) = ended.counts(0);
        assert!((100..=101).contains(&calls) && delayed == calls, "{python}: {calls}");
        let (calls, delayed) = ended.counts(1);
        assert!((200..=201).contains(&calls) && delayed == calls, "{python}: {calls}");
    });
}

#[test]
fn a_process_in_a_pid_namespace_names_its_map_by_the_number_it_knows() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let in_containers: Vec<_> = with_trampolines().filter(|python| python.form == Form::Container).collect();
    if in_containers.is_empty() {
        return skip!("no Python has a root of its own here: run `cargo xtask pythons`");
    }
    for python in in_containers {
        let inner = python.command_with(&PERF, &script());
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(inner.get_program()).args(inner.get_args());
        let mut service = Service::start(command.env("PYTHON_JIT", "0")).unwrap();
        assert_eq!(service.ready()["pid"], 1, "{python}");
        let children = format!("/proc/{0}/task/{0}/children", service.pid());
        let pid: i32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        service.ask("plain(1)").unwrap();
        let session =
            Attached::start(pid, "*/calls.py:plain\n*/calls.py:late\n", &["--no-inject", "-vv"]).unwrap();
        service.ask("times(100, plain, 1); late(1)").unwrap();
        session.wait_for("late is covered").unwrap();
        service.ask("times(50, late, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (100, 100), "{python}");
        assert!((50..=51).contains(&ended.counts(1).0), "{python}: {:?}", ended.counts(1));
    }
}
