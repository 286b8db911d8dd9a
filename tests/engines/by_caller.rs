//! `caller=`: targets for calls from some functions alone, through the helper.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;
use speed_bump_testing::{
    Attached, PythonBuild, Service,
    exact::{self, Subject},
    pythons,
    session::Ended,
    skip_case, tool,
    wait::PATIENCE,
};
use speed_bump_tests::{
    calls::{list, one_of_each_version, run, start, with_trampolines},
    helper::{attach, on_each, one_by_one},
};

/// The fixture, which has imported the functions that share one.
fn start_shared(python: &PythonBuild) -> Service {
    let mut service = start(python, &[]);
    service.ask("import shared; from shared import *").unwrap();
    service
}

/// Calls and delayed calls of each target.
fn counts(ended: &Ended) -> Vec<(u64, u64)> {
    (0..ended.report["targets"].as_array().unwrap().len()).map(|target| ended.counts(target)).collect()
}

#[test]
fn only_calls_from_the_caller_are_counted_and_delayed() {
    on_each(|python| {
        let mut service = start_shared(python);
        let session = attach(&service, "*/shared.py:burn caller=hot\n", &["--delay", "1us"]);
        service.ask("hot(300); cold(200); Service().hot(100); burn()").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [(300, 300)], "{python}: {}", ended.run.stderr);
        assert_eq!(ended.report["warnings"], json!([]), "{python}: {}", ended.run.stderr);
        let target = ended.target(0);
        assert_eq!((&target["pattern"], &target["caller"]), (&json!("*/shared.py:burn"), &json!("hot")));
        assert_eq!(target["id"], "*/shared.py:burn caller=hot");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn the_first_line_whose_caller_matches_takes_the_call() {
    const TARGETS: &str = "\
        */shared.py:burn caller=hot delay=1us\n\
        */shared.py:burn caller=*/shared.py:* delay=2us frequency=10\n\
        */shared.py:cold caller=<command>:<module>\n\
        */shared.py:burn id=rest\n\
        */shared.py:burn id=late\n";
    on_each(|python| {
        let mut service = start_shared(python);
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        service.ask("hot(300); cold(200); Service().hot(100); burn(); burn()").unwrap();
        let ended = session.stop().unwrap();
        let expected = [(300, 300), (300, 30), (1, 1), (2, 2), (0, 0)];
        assert_eq!(counts(&ended), expected, "{python}: {}", ended.run.stderr);
    });
}

/// Which frame is the calling one, in each way to call a function.
#[test]
fn the_calling_frame_is_that_of_python_code() {
    /// A statement, a target, and how many calls it takes.
    const CASES: &[(&str, &str, u64)] = &[
        ("hot(20)", "burn caller=hot", 20),
        ("Service().hot(21)", "burn caller=Service.hot", 21),
        ("outer(22)", "burn caller=outer.<locals>.inner", 22),
        // C code in between: whose Python frame it runs in.
        ("mapped(23)", "burn caller=mapped", 23),
        ("goes_through(lazily(24))", "burn caller=goes_through", 24),
        ("goes_through(lazily(25))", "burn caller=lazily", 0),
        ("sorts(26)", "burn caller=sorts", 26),
        ("comprehends(27)", "burn caller=comprehends*", 27),
        // The generator's own frame, and not that of its consumer.
        ("goes_through(generates(28))", "burn caller=generates", 28),
        ("goes_through(generates(29))", "burn caller=goes_through", 0),
        ("thrower(30)", "burn caller=raises", 30),
        ("thrower(31)", "burn caller=thrower", 0),
        // Of a recursion, all but the first call are by the function itself.
        ("starts_again(32)", "again caller=again", 32),
        ("starts_again(33)", "again caller=starts_again", 1),
        // A generator starts when its consumer asks for the first value.
        ("goes_through(numbers(3))", "numbers caller=goes_through", 1),
        ("times(34, hot, 1)", "burn caller=hot", 34),
        ("times(35, burn, 1)", "burn caller=*/calls.py:times", 35),
        ("in_thread(36)", "burn caller=threading:Thread.run", 36),
        ("in_thread(1)", "*/threading.py:Thread._bootstrap caller=*", 0),
        ("in_thread(1)", "*/threading.py:Thread._bootstrap", 1),
        ("for _ in range(37): burn()", "burn caller=<module>", 37),
        ("for _ in range(38): burn()", "burn caller=<command>:*", 38),
        ("exec('def new(): burn(); burn()'); new()", "burn caller=new", 2),
        ("class Body: burn(); burn()", "burn caller=Body", 2),
        ("WAITING.set(); THREAD.join()", "burn caller=waits", 7),
    ];
    /// A call that began before the session did.
    const BEFORE: &str = "import threading; WAITING = threading.Event(); \
                          exec('def waits():\\n WAITING.wait()\\n for _ in range(7): burn()'); \
                          THREAD = threading.Thread(target=waits); THREAD.start()";
    on_each(|python| {
        let mut service = start_shared(python);
        service.ask(BEFORE).unwrap();
        for (statement, target, calls) in CASES {
            let module = if target.starts_with('*') { "" } else { "*/shared.py:" };
            let session = attach(&service, &format!("{module}{target}\n"), &["--delay", "1us"]);
            service.ask(statement).unwrap();
            let ended = session.stop().unwrap();
            let expected = [(*calls, *calls)];
            assert_eq!(counts(&ended), expected, "{python}: {target} in `{statement}`");
        }
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn the_delay_is_seen_from_the_caller_and_not_from_others() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = exact::start_python(python, &[]).unwrap();
        let attach = |service: &mut Service, delay: &str| {
            let flags = ["--entry", "helper", "--delay", delay];
            Attached::start(service.pid(), "*/exact.py:worked caller=time_calls\n", &flags)
        };
        let mut subject = Subject { service: &mut service, function: "worked", attach };
        let short = subject.short().unwrap();
        if short.is_emulated() {
            skip_case!(python, "an emulated processor is too slow for a short delay of a Python function");
        } else {
            short.assert_exact(&format!("{python}, a short delay"));
        }
        subject.long(2_000_000).unwrap().assert_exact(&format!("{python}, a long delay"));
        // Another function's calls alone: these here take no delay.
        let flags = ["--entry", "helper", "--delay", "1s"];
        let targets = "*/exact.py:worked caller=main\n*/exact.py:worked delay=0 id=others\n";
        let session = Attached::start(service.pid(), targets, &flags).unwrap();
        service.ask("time worked 0 1 50").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [(0, 0), (50, 0)], "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// Times, pairs and recursion of calls that count, beside calls of the same function that do not.
#[test]
fn calls_for_others_are_not_timed() {
    on_each(|python| {
        let mut service = start_shared(python);
        let targets = "*/shared.py:again caller=starts_again\n*/shared.py:burn caller=hot\n";
        let session = attach(&service, targets, &["--delay", "0", "--times", "--callers"]);
        service.ask("[starts_again(9) for _ in range(5)]; thrower(8); hot(7); cold(6)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [(5, 0), (7, 0)], "{python}: {}", ended.run.stderr);
        assert_eq!(ended.report["warnings"], json!([]), "{python}: {}", ended.run.stderr);
        for (target, calls, caller) in [(0, 5, "starts_again"), (1, 7, "hot")] {
            let function = &ended.target(target)["functions"][0];
            assert_eq!(function["primitive_calls"], calls, "{python}: {function}");
            let (own, all) = (function["own_ns"].as_u64(), function["cumulative_ns"].as_u64());
            assert!(own.is_some() && own == all, "{python}: nothing that it calls is timed: {function}");
            let callers = function["callers"].as_array().unwrap();
            assert_eq!(callers.len(), 1, "{python}: {function}");
            assert_eq!((&callers[0]["name"], &callers[0]["calls"]), (&json!(caller), &json!(calls)));
        }
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn callers_of_targets_that_come_and_go_are_told_apart() {
    on_each(|python| {
        let mut service = start_shared(python);
        let session = attach(&service, "*/shared.py:burn caller=hot\n", &["--delay", "1us"]);
        service.ask("hot(1); cold(10)").unwrap();
        let set = |words: &[&str]| {
            let number = session.pid().to_string();
            let ran = tool::run(&[&["set", "--session", &number], words].concat(), PATIENCE).unwrap();
            assert!(ran.status.success(), "{python}: {words:?}: {}", ran.stderr);
        };
        set(&["--add", "*/shared.py:burn", "caller=cold"]);
        service.ask("hot(100); cold(1000)").unwrap();
        set(&["--drop", "*/shared.py:burn caller=hot"]);
        service.ask("hot(10000); cold(10000)").unwrap();
        set(&["*/shared.py:burn", "caller=cold", "delay=0"]);
        service.ask("cold(1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [(101, 101), (11001, 11000)], "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn forked_children_and_other_engines_tell_callers_too() {
    on_each(|python| {
        for engine in ["helper", "bpf"] {
            let mut service = start_shared(python);
            let targets = "*/shared.py:burn caller=hot\n*/shared.py:burn caller=cold\n";
            let session = attach(&service, targets, &["--engine", engine, "--delay", "1us"]);
            service.ask("hot(30); child(Forked); CHILD.ask('hot(5); cold(6); burn()')").unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(counts(&ended), [(35, 35), (6, 6)], "{python}, {engine}: {}", ended.run.stderr);
            assert!(service.quit().unwrap().success(), "{python}");
        }
    });
}

#[test]
fn a_caller_that_is_not_there_is_told() {
    on_each(|python| {
        let service = start_shared(python);
        let targets = "*/shared.py:burn caller=colt\n*/shared.py:burn caller=hot\n";
        let listed = list(service.pid(), targets, &[]);
        assert!(listed.status.success(), "{python}: {}", listed.stderr);
        let said = "no function that is loaded matches `caller=colt`: similar names are `/";
        assert!(listed.stderr.contains(said), "{python}: {}", listed.stderr);
        assert!(listed.stderr.contains("/shared.py:cold`"), "{python}: {}", listed.stderr);
        assert!(!listed.stderr.contains("caller=hot"), "{python}: {}", listed.stderr);
        let strict = run(service.pid(), targets, &["--strict", "--entry", "helper"]);
        assert_eq!(strict.status.code(), Some(3), "{python}: {}", strict.stderr);
        assert!(strict.stderr.contains("no function matches `caller=colt`"), "{python}: {}", strict.stderr);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn who_does_not_see_callers_refuses_them() {
    one_by_one(&one_of_each_version(with_trampolines()), |python| {
        let mut service = start(python, &["-X", "perf"]);
        service.ask("import shared; shared.burn()").unwrap();
        for (targets, flags, code, why) in [
            (
                "*/shared.py:burn caller=hot\n",
                &["--entry", "perf-map"][..],
                4,
                "calls here would be seen by `perf-map`",
            ),
            ("*/shared.py:burn caller=hot\n", &["--no-inject"], 4, "let the helper in"),
        ] {
            let refused = run(service.pid(), targets, flags);
            assert_eq!(refused.status.code(), Some(code), "{python}: {targets}: {}", refused.stderr);
            assert!(refused.stderr.contains(why), "{python}: {targets}: {}", refused.stderr);
            assert!(refused.stderr.contains("`caller=`"), "{python}: {targets}: {}", refused.stderr);
        }
        assert!(service.quit().unwrap().success(), "{python}");
    });
}
