//! Python functions through `function__entry`: counted from the first call on, named through the source file.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use serde_json::json;
use speed_bump_testing::{
    Attached, PythonBuild, Service, case_ran,
    exact::{self, Subject},
    session::obstacle,
    skip, skip_case,
};
use speed_bump_tests::calls::{
    code, counts, functions, one_of_each_version, script, start, start_script, with_usdt,
};

/// Runs a case on every interpreter whose probe fires.
fn on_each(case: impl Fn(&PythonBuild)) {
    on_each_of(&with_usdt().collect::<Vec<_>>(), case);
}

/// Runs a case on each of these interpreters, whose probes fire.
fn on_each_of(pythons: &[&PythonBuild], case: impl Fn(&PythonBuild)) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if pythons.is_empty() {
        return skip!("no Python has a function__entry that fires: run `cargo xtask pythons`");
    }
    pythons.iter().for_each(|python| case(python));
}

fn attach(service: &Service, targets: &str) -> Attached {
    Attached::start(service.pid(), targets, &["--no-inject", "-vv"]).unwrap()
}

#[test]
fn functions_are_told_apart_by_the_qualified_names_of_the_source() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(
            &service,
            "*/calls.py:K.m\n*/calls.py:outer.<locals>.inner\n*/calls.py:<lambda>\n*/calls.py:K.__init__\n\
             */calls.py:recursive\n",
        );
        // The first call of each asks for the verdict, and is counted alone.
        service.ask("INSTANCE.m(); outer(1); double(1); K(); recursive(0)").unwrap();
        for name in ["m", "inner", "<lambda>", "__init__", "recursive"] {
            session.wait_for(&format!(": {name} is covered")).unwrap();
        }
        service.ask("times(99, INSTANCE.m); times(7, OTHER.m)").unwrap();
        service.ask("times(19, outer, 1); list(map(double, range(29)))").unwrap();
        service.ask("for _ in range(999): K()").unwrap();
        service.ask("recursive(48)").unwrap();
        let ended = session.stop().unwrap();
        let counts = [0, 1, 2, 3, 4].map(|target| ended.counts(target));
        assert_eq!(counts, [100, 20, 30, 1000, 50].map(|calls| (calls, calls - 1)), "{python}");
        for target in 0..5 {
            assert_eq!(ended.target(target)["entry"], "usdt", "{python}");
        }
        assert_eq!(ended.functions(0), ["K.m"], "{python}");
        let text = fs::read_to_string(script()).unwrap();
        let line = text.lines().position(|line| line.contains("def m(self)")).unwrap() + 1;
        let method = &ended.target(0)["functions"][0];
        assert_eq!(
            (&method["line"], &method["file"]),
            (&json!(line), &json!(python.inside(&script()))),
            "{python}"
        );
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn what_the_probe_cannot_tell_apart_is_said() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*/calls.py:K.m\n");
        // From 3.11 on the probe gives no line for a function that begins with a closure's variables, as
        // super() makes it: they have an instruction of their own, which has none. Before, it always gives
        // the first.
        let told_apart = python.minor() < (3, 11);
        service.ask("times(7, Sub(1).m); times(5, OTHER.m)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0).0, if told_apart { 7 } else { 14 }, "{python}: {}", ended.report);
        let warnings = ended.report["warnings"].to_string();
        let is_said = warnings.contains("cannot be told apart") && warnings.contains("Sub.m");
        assert_eq!(is_said, !told_apart, "{python}: {warnings}");
    });
}

#[test]
fn every_call_after_the_verdict_is_delayed_and_every_one_before_is_counted() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*/calls.py:plain\n*/calls.py:other frequency=10\n");
        for (first, then) in [("plain", "times(100, plain, 1)"), ("other", "times(100, other, 1)")] {
            service.ask(&format!("{first}(1)")).unwrap();
            session.wait_for(&format!("{first} is covered")).unwrap();
            service.ask(then).unwrap();
        }
        service.ask("in_threads(10, 50, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        // The first call asked for the verdict.
        assert_eq!(ended.counts(0), (601, 600), "{python}");
        assert_eq!(ended.counts(1), (101, 10), "{python}");
    });
}

#[test]
fn delays_are_exact() {
    on_each_of(&one_of_each_version(with_usdt()), |python| {
        let mut service = exact::start_python(python, &[]).unwrap();
        let by = |engine: &'static str| {
            move |service: &mut Service, delay: &str| {
                let flags = ["--entry", "usdt", "-vv", "--engine", engine, "--delay", delay];
                let session = Attached::start(service.pid(), "*/exact.py:worked\n", &flags)?;
                service.ask("time worked 0 1 1")?;
                session.wait_for("worked is covered")?;
                Ok(session)
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
fn without_the_source_the_last_component_decides() {
    on_each(|python| {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("gone.py");
        fs::copy(script(), &copy).unwrap();
        let mut service = start_script(python, &[], &copy);
        fs::remove_file(&copy).unwrap();
        let session = attach(&service, "*/gone.py:K.m\n*/gone.py:plain\n*/gone.py:No.other\n");
        service
            .ask("times(10, INSTANCE.m); times(10, OTHER.m); times(5, plain, 1); times(6, other, 1)")
            .unwrap();
        let ended = session.stop().unwrap();
        // K.m and Other.m are both called m.
        let calls = [0, 1, 2].map(|target| ended.counts(target).0);
        assert_eq!(calls, [20, 5, 6], "{python}: {}", ended.report);
        assert_eq!(ended.functions(0), ["m", "m"], "{python}");
    });
}

#[test]
fn everything_is_selected_but_what_is_excluded() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let before = code(service.pid(), python);
        let session = attach(&service, "*:*\n!*/calls.py:K.*\n!*/json/*:*\n");
        service
            .ask("times(10, plain, 1); times(10, OTHER.m); times(10, INSTANCE.m); json.loads('[1]')")
            .unwrap();
        service.ask("import textwrap; textwrap.dedent('  a')").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended, "plain").0, 10, "{python}");
        assert_eq!(counts(&ended, "Other.m").0, 10, "{python}");
        assert_eq!(counts(&ended, "dedent").0, 1, "{python}");
        assert_eq!(counts(&ended, "K.m"), (0, 0), "{python}");
        let files = functions(&ended);
        let of_json = files.iter().find(|function| function["file"].as_str().unwrap().contains("/json/"));
        assert_eq!(of_json, None, "{python}");
        assert_eq!(code(service.pid(), python), before, "{python}: all is detached");
    });
}

#[test]
fn calls_just_before_the_end_are_counted() {
    on_each(|python| {
        // By a signal to the loader, and by the end of the process.
        let mut service = start(python, &[]);
        for _ in 0..5 {
            let session = attach(&service, "*/calls.py:plain\n");
            service.ask("times(30, plain, 1)").unwrap();
            assert_eq!(session.stop().unwrap().counts(0).0, 30, "{python}");
        }
        let session = attach(&service, "*/calls.py:plain\n");
        let _ = service.ask("times(30, plain, 1); os._exit(0)").unwrap_err();
        assert_eq!(session.finish().unwrap().counts(0).0, 30, "{python}");
    });
}

#[test]
fn the_probe_can_be_asked_for_beside_trampolines() {
    on_each(|python| {
        let mut service = start(python, &["-X", "perf"]);
        service.ask("plain(1)").unwrap();
        let session = Attached::start(service.pid(), "*/calls.py:plain\n", &["--entry", "usdt"]).unwrap();
        service.ask("times(40, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!((ended.counts(0).0, &ended.target(0)["entry"]), (40, &json!("usdt")), "{python}");
    });
}
