//! `--callers`: who calls whom among Python functions, by the helper.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use serde_json::{Value, json};
use speed_bump_testing::{
    Attached, Service,
    exact::{self, Subject},
    pythons,
    session::Ended,
    tool,
};
use speed_bump_tests::{
    calls::{functions, one_of_each_version, start_timed},
    helper::{GETPPID, attach, on_each, one_by_one},
};

const FLAGS: [&str; 4] = ["--times", "--callers", "--delay", "0"];

/// How many callers of a function are printed.
const PRINTED: usize = 5;

/// Calls and primitive calls of one function by another one; `None` where there are none.
fn calls(ended: &Ended, caller: &str, callee: &str) -> Option<(u64, u64)> {
    let function = functions(ended).into_iter().find(|of| of["name"] == callee)?;
    let by = function["callers"].as_array()?.iter().find(|by| by["name"] == caller)?;
    Some((by["calls"].as_u64().unwrap(), by["primitive_calls"].as_u64().unwrap()))
}

#[test]
fn each_pair_is_as_cprofile_has_it() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, "*timed.py:*\n", &FLAGS);
        let profile = service.ask("say(profile=timed.profiled(timed.everything))").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.report["warnings"], json!([]), "{python}: {}", ended.run.stderr);
        let is = |of: &Value, entry: &Value| {
            let name = of["name"].as_str().unwrap();
            name.rsplit('.').next().unwrap() == entry[0].as_str().unwrap() && of["line"] == entry[1]
        };
        let mut pairs = 0;
        for caller in profile[0]["profile"].as_array().unwrap() {
            for callee in caller[4].as_array().unwrap() {
                let function = functions(&ended).into_iter().find(|of| is(of, callee)).unwrap();
                let callers = function["callers"].as_array().unwrap();
                let by = callers.iter().find(|by| is(by, caller)).unwrap();
                assert_eq!(
                    (&by["calls"], &by["primitive_calls"]),
                    (&callee[2], &callee[3]),
                    "{python}: {} calls {callee}",
                    caller[0]
                );
                assert!(by["cumulative_ns"].as_u64().unwrap() >= by["own_ns"].as_u64().unwrap() / 2);
                pairs += 1;
            }
        }
        assert!(pairs >= 18, "{python}: {profile:?}");
        // Own times of the calls by all are that of the function.
        let leaf = functions(&ended).into_iter().find(|of| of["name"] == "leaf").unwrap();
        let by_all: u64 =
            leaf["callers"].as_array().unwrap().iter().map(|by| by["own_ns"].as_u64().unwrap()).sum();
        // Each sum is rounded for itself.
        assert!(by_all.abs_diff(leaf["own_ns"].as_u64().unwrap()) <= 16, "{python}: {leaf}");
    });
}

/// Whether a target selects it or not, and whether it began in the session or before.
#[test]
fn the_caller_is_the_function_of_the_calling_frame() {
    const BEFORE: &str = "import threading; \
                          LOCK = threading.Lock(); \
                          LOCK.acquire(); \
                          WAITING = threading.Thread(target=timed.then_leaf, args=(LOCK.acquire,)); \
                          WAITING.start()";
    on_each(|python| {
        let mut service = start_timed(python);
        service.ask(BEFORE).unwrap();
        let session = attach(&service, "*timed.py:everything\n*timed.py:leaf\n", &FLAGS);
        service.ask("timed.everything()").unwrap();
        service.ask("timed.then_leaf(int); timed.then_leaf(int); LOCK.release(); WAITING.join()").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.report["warnings"], json!([]), "{python}: {}", ended.run.stderr);
        let leaf = functions(&ended).into_iter().find(|of| of["name"] == "leaf").unwrap();
        let by: Vec<_> = leaf["callers"].as_array().unwrap().iter().collect();
        // Others call it too, which `everything` calls: none of them is selected.
        assert_eq!(calls(&ended, "everything", "leaf"), Some((100, 100)), "{python}: {leaf}");
        assert_eq!(calls(&ended, "then_leaf", "leaf"), Some((3, 3)), "{python}: {leaf}");
        assert_eq!(calls(&ended, "waiting", "leaf"), Some((7, 7)), "{python}: {leaf}");
        let sum: u64 = by.iter().map(|by| by["calls"].as_u64().unwrap()).sum();
        assert_eq!(sum, leaf["calls"].as_u64().unwrap(), "{python}: each call has a caller: {leaf}");
        let outside = by.iter().find(|by| by["name"] == "then_leaf").unwrap();
        assert!(outside["file"].as_str().unwrap().ends_with("timed.py"), "{python}: {outside}");
        assert!(outside["line"].as_u64() > Some(1), "{python}: {outside}");
        // Callers are not recorded for that.
        let mut names: Vec<_> = functions(&ended).iter().map(|of| of["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["everything", "leaf"], "{python}");
        // Those that took most time are printed, selected or not.
        let is_printed =
            |by: &&&Value| ended.run.stderr.contains(&format!("({})", by["name"].as_str().unwrap()));
        assert!(by.len() > PRINTED, "{python}: {leaf}");
        assert_eq!(by.iter().filter(is_printed).count(), PRINTED, "{python}: {}", ended.run.stderr);
    });
}

/// A function that becomes a target after it was known as a caller is watched from then on.
#[test]
fn a_caller_can_become_a_target() {
    on_each(|python| {
        let mut service = start_timed(python);
        for _ in 0..2 {
            let session = attach(&service, "*timed.py:leaf\n", &FLAGS);
            service.ask("timed.then_leaf(int)").unwrap();
            assert_eq!(calls(&session.stop().unwrap(), "then_leaf", "leaf"), Some((1, 1)), "{python}");
            let session = attach(&service, "*timed.py:then_leaf\n*timed.py:leaf\n", &FLAGS);
            service.ask("timed.then_leaf(int); timed.then_leaf(int)").unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(calls(&ended, "then_leaf", "leaf"), Some((2, 2)), "{python}");
            let caller = functions(&ended).into_iter().find(|of| of["name"] == "then_leaf").unwrap();
            assert_eq!(caller["calls"], 2, "{python}: {caller}");
        }
    });
}

/// The same during a session: a caller is one function in the report, in whichever way it became known.
#[test]
fn a_caller_can_become_a_target_of_the_same_session() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, "*timed.py:leaf\n", &FLAGS);
        service.ask("timed.then_leaf(int); timed.then_leaf(int)").unwrap();
        let pid = session.pid().to_string();
        let add = ["set", "--session", &pid, "*timed.py:then_leaf", "delay=1ms", "--add"];
        let run = tool::run(&add, Duration::from_secs(60)).unwrap();
        assert!(run.status.success(), "{python}: {}", run.stderr);
        session.wait_for(": then_leaf is covered").unwrap();
        service.ask("timed.then_leaf(int); timed.then_leaf(int); timed.then_leaf(int)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.report["warnings"], json!([]), "{python}: {}", ended.run.stderr);
        assert_eq!(ended.target(1)["delayed"], 3, "{python}: {}", ended.report);
        let leaf = functions(&ended).into_iter().find(|of| of["name"] == "leaf").unwrap();
        assert_eq!(leaf["callers"].as_array().unwrap().len(), 1, "{python}: {leaf}");
        assert_eq!(calls(&ended, "then_leaf", "leaf"), Some((5, 5)), "{python}: {leaf}");
    });
}

/// An exception is set when the helper first records a caller, and the caller's file name is not UTF-8.
#[test]
fn no_exception_is_lost_over_a_callers_name() {
    const THROWER: &str = "\
def thrower(generator):
    try:
        generator.throw(KeyError)
    except BaseException as error:
        return type(error).__name__
";
    on_each(|python| {
        let mut service = start_timed(python);
        let text = serde_json::to_string(THROWER).unwrap();
        let define = format!("exec(compile({text}, '/x\\udc80.py', 'exec'), globals())");
        service.ask(&define).unwrap();
        let session = attach(&service, "*timed.py:numbers\n", &FLAGS);
        service.ask("GENERATOR = timed.numbers(3); next(GENERATOR)").unwrap();
        let said = service.ask("say(raised=thrower(GENERATOR))").unwrap();
        assert_eq!(said[0]["raised"], "KeyError", "{python}");
        let ended = session.stop().unwrap();
        assert_eq!(ended.report["warnings"], json!([]), "{python}");
        let numbers = functions(&ended).into_iter().find(|of| of["name"] == "numbers").unwrap();
        let by = numbers["callers"].as_array().unwrap();
        let thrower = by.iter().find(|by| by["name"] == "thrower").unwrap();
        assert_eq!((&thrower["file"], &thrower["calls"]), (&json!("/x\u{fffd}.py"), &json!(1)), "{python}");
    });
}

/// What it takes to find the caller is part of a delay.
#[test]
fn delays_are_as_exact_where_callers_are_recorded() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = exact::start_python(python, &[]).unwrap();
        let attach = |service: &mut Service, delay: &str| {
            let flags = ["--entry", "helper", "--times", "--callers", "--delay", delay];
            Attached::start(service.pid(), "*/exact.py:worked\n", &flags)
        };
        let mut subject = Subject { service: &mut service, function: "worked", attach };
        subject.short().unwrap().assert_exact(&format!("{python}, a short delay"));
        let long = subject.long(2_000_000).unwrap();
        long.assert_exact(&format!("{python}, a long delay"));
        let calls = long.ended.target(0)["calls"].as_u64().unwrap();
        assert_eq!(self::calls(&long.ended, "time_calls", "worked"), Some((calls, calls)), "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn threads_and_forked_children_add_to_the_same_pairs() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, "*timed.py:*\n", &FLAGS);
        service.ask("timed.in_threads(4, timed.recursing, 5, 1000)").unwrap();
        let child = "timed.recursing(2, 1000) if child == 0 else os.waitpid(child, 0)";
        service.ask(&format!("child = os.fork(); {child}; child or os._exit(0)")).unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(calls(&ended, "recursing", "recursing"), Some((4 * 5 + 2, 4 + 1)), "{python}");
        assert_eq!(calls(&ended, "recursing", "spinning"), Some((4 * 6 + 3, 4 * 6 + 3)), "{python}");
    });
}

#[test]
fn without_the_flag_nothing_is_recorded() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, "*timed.py:*\n", &["--times", "--delay", "0"]);
        service.ask("timed.everything()").unwrap();
        let ended = session.stop().unwrap();
        assert!(functions(&ended).iter().all(|of| of.get("callers").is_none()), "{python}");
        assert!(!ended.run.stderr.contains("was called by"), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn the_report_says_who_called_what() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, "*timed.py:recursing\n*timed.py:spinning\n", &FLAGS);
        service.ask("timed.recursing(3, 1000)").unwrap();
        let said = session.stop().unwrap().run.stderr;
        let line = said.lines().find(|line| line.contains("(spinning)") && line.contains("<-")).unwrap();
        assert!(line.contains(" 4 ") && line.ends_with("(recursing)"), "{python}: {line}");
        let line = said.lines().find(|line| line.contains("(recursing) ") && line.contains("<-")).unwrap();
        assert!(line.contains(" 3/1 "), "{python}: {line}");
    });
}

/// The calls of an earlier session do not count in a later one.
#[test]
fn each_session_counts_for_itself() {
    on_each(|python| {
        let mut service = start_timed(python);
        for depth in [4, 7] {
            let session = attach(&service, "*timed.py:*\n", &FLAGS);
            service.ask(&format!("timed.direct({depth})")).unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(calls(&ended, "direct", "direct"), Some((depth, 1)), "{python}");
        }
    });
}

/// What no session could do is refused before anything is attached, and omissions are reported.
#[test]
fn only_of_python_functions_is_it_recorded() {
    let newest: Vec<_> = pythons().iter().rev().take(1).collect();
    one_by_one(&newest, |python| {
        let service = start_timed(python);
        let session = attach(&service, &format!("*timed.py:*\n{GETPPID}"), &FLAGS);
        let said = session.stop().unwrap().run.stderr;
        assert!(said.contains("of native functions it is not recorded who calls them"), "{python}: {said}");
        let refused = tool::run(
            &["--pid", &service.pid().to_string(), "--target", GETPPID.trim_end(), "--times", "--callers"],
            Duration::from_secs(60),
        );
        let refused = refused.unwrap();
        assert!(refused.stderr.contains("no target is a Python function"), "{python}: {}", refused.stderr);
        assert!(!refused.status.success());
    });
}
