//! Other tools of `sys.monitoring` in the process: which events they get, from 3.12 on.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{PythonBuild, Service, pythons, session::obstacle, side_by_side, skip};
use speed_bump_tests::calls::{counts, start};
use speed_bump_tests::helper::attach;

/// This many sessions in a row, each with another tool id, need only one restart of all events.
const SESSIONS: usize = 2;

fn on_each(case: impl Fn(&PythonBuild) + Sync) {
    let monitored: Vec<_> = pythons().iter().filter(|python| python.minor() >= (3, 12)).collect();
    match obstacle() {
        Some(why) => skip!("{why}"),
        None if monitored.is_empty() => skip!("no CPython from 3.12 on"),
        None => side_by_side::on_each(&monitored, |python| case(python)),
    }
}

/// A coverage tool, which gets one event for each function and then disables it.
fn with_tool(python: &PythonBuild) -> Service {
    let mut service = start(python, &[]);
    let heard = "def heard(code, offset):\\n HEARD.append(code.co_name)\\n return sys.monitoring.DISABLE\\n";
    service
        .ask(&format!(
            "HEARD = []; M = sys.monitoring; exec('{heard}', globals()); M.use_tool_id(1, 'coverage'); \
             M.register_callback(1, M.events.PY_START, heard); M.set_events(1, M.events.PY_START)"
        ))
        .unwrap();
    service.ask("times(3, plain, 1); times(3, other, 1); K.static_method()").unwrap();
    service
}

/// How many events it got for `plain` and `other`.
fn heard(service: &mut Service) -> u64 {
    let ask = "say(heard=HEARD.count('plain') + HEARD.count('other'))";
    service.ask(ask).unwrap()[0]["heard"].as_u64().unwrap()
}

/// The events that another tool gets again when the first session of a process starts, since it is unknown
/// who had the helper's tool ids before.
const ONCE_MORE: u64 = 2;

#[test]
fn what_another_tool_has_disabled_is_reported_to_it_again_with_every_second_session_at_most() {
    on_each(|python| {
        let mut service = with_tool(python);
        assert_eq!(heard(&mut service), 2, "{python}");
        for session in 0..SESSIONS {
            // What a session before disabled is selected now, and the other way round.
            let (name, unselected) = [("plain", "other"), ("other", "plain")][session % 2];
            let attached = attach(&service, &format!("*/calls.py:{name}\n"), &["--delay", "1us"]);
            service.ask("times(10, plain, 1); times(10, other, 1)").unwrap();
            let ended = attached.stop().unwrap();
            assert_eq!(counts(&ended, name), (10, 10), "{python}, session {session}");
            assert_eq!(counts(&ended, unselected), (0, 0), "{python}, session {session}");
            assert_eq!(heard(&mut service), 2 + ONCE_MORE, "{python}, session {session}");
        }
        // From then on it gets events again, once, and counts are exact all the same.
        for session in 0..SESSIONS {
            let attached = attach(&service, "*/calls.py:plain\n*/calls.py:other\n", &["--delay", "1us"]);
            service.ask("times(10, plain, 1); times(10, other, 1)").unwrap();
            let ended = attached.stop().unwrap();
            for name in ["plain", "other"] {
                assert_eq!(counts(&ended, name), (10, 10), "{python}, session {session} with both");
            }
            assert_eq!(heard(&mut service), 2 + 2 * ONCE_MORE, "{python}, session {session} with both");
        }
    });
}

#[test]
fn what_another_tool_has_disabled_is_not_reported_to_it_when_targets_change() {
    on_each(|python| {
        let mut service = with_tool(python);
        let mut session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
        service.ask("times(10, plain, 1); times(10, other, 1)").unwrap();
        assert_eq!(heard(&mut service), 2 + ONCE_MORE, "{python}");
        session.write_targets("*/calls.py:other\n").unwrap();
        session.signal(rustix::process::Signal::USR1).unwrap();
        session.wait_for("other is covered").unwrap();
        service.ask("import time; time.sleep(0.5); times(10, plain, 1); times(10, other, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended, "plain"), (10, 10), "{python}: {}", ended.run.stderr);
        assert_eq!(counts(&ended, "other"), (10, 10), "{python}: {}", ended.run.stderr);
        assert_eq!(heard(&mut service), 2 + ONCE_MORE, "{python}");
    });
}

/// A tool that has gone, or a helper of another version: Python keeps what it disabled until it runs the code
/// once more.
#[test]
fn functions_are_counted_that_another_tool_had_disabled_by_the_id_that_the_helper_takes() {
    on_each(|python| {
        let mut service = with_tool(python);
        let ids = "for id in (3, 4, 5): ";
        for each in [
            "M.use_tool_id(id, 'gone'); M.register_callback(id, M.events.PY_START, lambda *_: M.DISABLE); \
             M.set_events(id, M.events.PY_START)",
            "plain(1); other(1)",
            "M.set_events(id, 0); M.register_callback(id, M.events.PY_START, None); M.free_tool_id(id)",
            // One of them runs since, and the other does not.
            "other(1)",
        ] {
            service.ask(&format!("{ids}{each}")).unwrap();
        }
        let attached = attach(&service, "*/calls.py:plain\n*/calls.py:other\n", &["--delay", "1us"]);
        service.ask("times(10, plain, 1); times(10, other, 1)").unwrap();
        let ended = attached.stop().unwrap();
        for name in ["plain", "other"] {
            assert_eq!(counts(&ended, name), (10, 10), "{python}: {name}");
        }
    });
}
