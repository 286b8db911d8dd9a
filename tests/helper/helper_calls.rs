//! Python functions through the helper: counted and delayed exactly, from their first call on.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use serde_json::json;
use speed_bump_testing::{
    Attached, Service, case_ran,
    exact::{self, Subject},
    pythons,
    session::obstacle_to_long_spins,
    skip_case,
};
use speed_bump_tests::calls::{counts, one_of_each_version, script, start};
use speed_bump_tests::helper::{GETPPID, attach, on_each, one_by_one};

/// The statements to run, and how often they call which functions.
type Case = (&'static str, &'static [(&'static str, u64)]);

#[test]
fn every_shape_of_function_is_counted_exactly() {
    const CASES: &[Case] = &[
        ("times(100, plain, 1)", &[("plain", 100)]),
        // Calls from bytecode, which CPython specialises after a few rounds.
        ("for _ in range(3000): other(1)", &[("other", 3000)]),
        ("times(30, outer, 1)", &[("outer", 30), ("outer.<locals>.inner", 30)]),
        ("list(map(double, range(40)))", &[("<lambda>", 40)]),
        ("times(5, recursive, 9)", &[("recursive", 50)]),
        ("times(6, caught)", &[("caught", 6), ("failing", 6)]),
        ("list(numbers(20)); list(numbers(30))", &[("numbers", 2)]),
        ("for _ in range(1000): K(); Sub()", &[("K.__init__", 2000)]),
        ("times(50, Sub.m, INSTANCE_OF_SUB)", &[("Sub.m", 50), ("K.m", 50)]),
        ("times(60, K.class_method); times(7, INSTANCE.class_method)", &[("K.class_method", 67)]),
        ("times(70, K.static_method)", &[("K.static_method", 70)]),
        ("for _ in range(80): INSTANCE.value", &[("K.value", 80)]),
        ("in_threads(10, 200, late, 1)", &[("late", 2000)]),
        ("times(9, OTHER.m)", &[("Other.m", 9)]),
    ];
    on_each(|python| {
        let mut service = start(python, &[]);
        service.ask("INSTANCE_OF_SUB = Sub.__new__(Sub); INSTANCE_OF_SUB.x = 1").unwrap();
        let session = attach(&service, "*/calls.py:*\n!*:times\n!*:say\n", &["--delay", "1us"]);
        for (command, _) in CASES {
            service.ask(command).unwrap();
        }
        let ended = session.stop().unwrap();
        for (command, expected) in CASES {
            for (name, calls) in *expected {
                assert_eq!(counts(&ended, name), (*calls, *calls), "{python}: {name} in `{command}`");
            }
        }
        assert_eq!(counts(&ended, "times"), (0, 0), "{python}: excluded");
        assert_eq!(ended.target(0)["entry"], "helper", "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn functions_are_named_by_file_and_line() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*/calls.py:Sub.m\n", &[]);
        service.ask("times(3, Sub(1).m)").unwrap();
        let ended = session.stop().unwrap();
        let text = fs::read_to_string(script()).unwrap();
        let line = text.lines().position(|line| line == "class Sub(K):").unwrap() + 2;
        let function = &ended.target(0)["functions"][0];
        let said = (&function["name"], &function["line"], &function["file"]);
        assert_eq!(said, (&json!("Sub.m"), &json!(line), &json!(python.inside(&script()))), "{python}");
    });
}

#[test]
fn functions_that_come_after_the_attach_are_delayed_from_their_first_call_on() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "<born>:*\n*/textwrap.py:dedent\n", &["--delay", "1us"]);
        for count in 1..=5 {
            let born = format!(
                "exec(compile('def new{count}(): pass', '<born>', 'exec')); times({count}, new{count})"
            );
            service.ask(&born).unwrap();
        }
        service.ask("import textwrap; textwrap.dedent(' a')").unwrap();
        let ended = session.stop().unwrap();
        for count in 1..=5 {
            assert_eq!(counts(&ended, &format!("new{count}")), (count, count), "{python}");
        }
        assert_eq!(counts(&ended, "<module>"), (5, 5), "{python}: the code of each exec");
        assert_eq!(ended.counts(1), (1, 1), "{python}");
    });
}

#[test]
fn the_delay_is_seen_from_inside() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = exact::start_python(python, &[]).unwrap();
        let attach = |service: &mut Service, delay: &str| {
            let flags = ["--entry", "helper", "--engine", "bpf", "--delay", delay];
            Attached::start(service.pid(), "*/exact.py:worked\n", &flags)
        };
        let mut subject = Subject { service: &mut service, function: "worked", attach };
        let short = subject.short().unwrap();
        if short.is_emulated() {
            skip_case!(python, "an emulated processor is too slow for a short delay of a Python function");
        } else {
            short.assert_exact(&format!("{python}, a short delay"));
        }
        if obstacle_to_long_spins().is_none() {
            subject.long(2_000_000).unwrap().assert_exact(&format!("{python}, a long delay"));
            case_ran!();
        }
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn lines_options_and_exclusions_mean_what_they_say() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let targets = "*/calls.py:plain delay=2us id=first\n\
                       */calls.py:pl* delay=1ms id=second\n\
                       */calls.py:other frequency=7\n\
                       */calls.py:K.* delay=0\n\
                       !*/calls.py:K.static_*\n\
                       json.decoder:*\n"
            .to_owned()
            + GETPPID;
        let session = attach(&service, &targets, &["--delay", "5us"]);
        service.ask("times(70, plain, 1); times(70, other, 1); times(70, INSTANCE.m)").unwrap();
        service
            .ask("times(70, K.static_method); times(20, json.loads, '[1]'); times(7, os.getppid)")
            .unwrap();
        let ended = session.stop().unwrap();
        let by_line = [0, 1, 2, 3, 4, 5].map(|target| ended.counts(target));
        assert_eq!(by_line, [(70, 70), (0, 0), (70, 10), (70, 0), (40, 40), (7, 7)], "{python}");
        assert_eq!(
            [0, 5].map(|target| ended.target(target)["entry"].clone()),
            ["helper", "symbol"],
            "{python}"
        );
        for name in ["JSONDecoder.decode", "JSONDecoder.raw_decode"] {
            assert_eq!(counts(&ended, name), (20, 20), "{python}: {name}");
        }
    });
}
