//! `--callers`: who calls whom among Python functions, by the helper.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use serde_json::{Value, json};
use speed_bump_testing::{pythons, session::Ended, tool};
use speed_bump_tests::{
    calls::{functions, start_timed},
    helper::{GETPPID, attach, on_each, one_by_one},
};

const FLAGS: [&str; 4] = ["--times", "--callers", "--delay", "0"];

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

#[test]
fn the_caller_is_the_selected_function_in_progress() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, "*timed.py:everything\n*timed.py:leaf\n", &FLAGS);
        service.ask("timed.everything()").unwrap();
        service.ask("timed.leaf()").unwrap();
        let ended = session.stop().unwrap();
        let leaf = functions(&ended).into_iter().find(|of| of["name"] == "leaf").unwrap();
        let all = leaf["calls"].as_u64().unwrap();
        assert_eq!(leaf["callers"].as_array().unwrap().len(), 1, "{python}: {leaf}");
        assert_eq!(calls(&ended, "everything", "leaf"), Some((all - 1, all - 1)), "{python}: {leaf}");
        let everything = functions(&ended).into_iter().find(|of| of["name"] == "everything").unwrap();
        assert!(everything.get("callers").is_none(), "{python}: nobody calls it: {everything}");
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

/// The calls of an earlier session are none of a later one's.
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

/// What no session could do is refused before anything is attached, and what it leaves out is told.
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
