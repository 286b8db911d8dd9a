//! Other tools of `sys.monitoring` in the process: what they hear of, from 3.12 on.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{PythonBuild, Service, pythons, session::obstacle, side_by_side, skip};
use speed_bump_tests::calls::{counts, start};
use speed_bump_tests::helper::attach;

/// So many sessions in a row need no restart of all events: each has a tool id that was never the helper's.
const SESSIONS: usize = 3;

fn on_each(case: impl Fn(&PythonBuild) + Sync) {
    let monitored: Vec<_> = pythons().iter().filter(|python| python.minor() >= (3, 12)).collect();
    match obstacle() {
        Some(why) => skip!("{why}"),
        None if monitored.is_empty() => skip!("no CPython from 3.12 on"),
        None => side_by_side::on_each(&monitored, |python| case(python)),
    }
}

/// A coverage tool, which hears of each function once and disables it then.
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

/// How often it has heard of `plain` and `other`.
fn heard(service: &mut Service) -> u64 {
    let ask = "say(heard=HEARD.count('plain') + HEARD.count('other'))";
    service.ask(ask).unwrap()[0]["heard"].as_u64().unwrap()
}

#[test]
fn what_another_tool_has_disabled_is_not_reported_to_it_again() {
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
            assert_eq!(heard(&mut service), 2, "{python}, session {session}");
        }
        // From then on it is heard of again, once, and counts are exact all the same.
        for session in 0..SESSIONS {
            let attached = attach(&service, "*/calls.py:plain\n*/calls.py:other\n", &["--delay", "1us"]);
            service.ask("times(10, plain, 1); times(10, other, 1)").unwrap();
            let ended = attached.stop().unwrap();
            for name in ["plain", "other"] {
                assert_eq!(counts(&ended, name), (10, 10), "{python}, session {session} with both");
            }
        }
        assert!(heard(&mut service) <= 2 + 2 * SESSIONS as u64, "{python}");
    });
}

#[test]
fn what_another_tool_has_disabled_is_not_reported_to_it_when_targets_change() {
    on_each(|python| {
        let mut service = with_tool(python);
        let mut session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
        service.ask("times(10, plain, 1); times(10, other, 1)").unwrap();
        session.write_targets("*/calls.py:other\n").unwrap();
        session.signal(rustix::process::Signal::USR1).unwrap();
        session.wait_for("other is covered").unwrap();
        service.ask("import time; time.sleep(0.5); times(10, plain, 1); times(10, other, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended, "plain"), (10, 10), "{python}: {}", ended.run.stderr);
        assert_eq!(counts(&ended, "other"), (10, 10), "{python}: {}", ended.run.stderr);
        assert_eq!(heard(&mut service), 2, "{python}");
    });
}
