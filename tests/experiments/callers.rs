//! A sweep has three callers: the command, `agent`, and programs that use the library. All find the same.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command, time::Duration};

use serde_json::{Value, json};
use speed_bump_testing::{Agent, tool, wait::PATIENCE};

use crate::planted::{Found, Planted, UNIT, planted, planted_tiny};

const RULES: [&str; 6] = ["--threshold", "0.25", "--worth", "1.5%", "--max-slowdown", "30%"];
const VERDICTS: [(&str, &str); 2] = [("render", "matters"), ("score", "does-not-matter")];

/// What an agent is asked for, as the command with [`RULES`] is.
fn ask(service: &Planted, seconds: u64) -> Value {
    json!({
        "do": "sweep",
        "pids": [service.pid()],
        "targets": ["*/planted.py:render", "*/planted.py:score"],
        "units": [{"progress": "*/planted.py:unit"}],
        "time_ns": seconds * 1_000_000_000,
        "seed": 1,
        "threshold": 0.25,
        "worth": 0.015,
        "max_slowdown": 0.3,
    })
}

/// Events of a sweep until it is over.
fn events(agent: &mut Agent) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    while all.last().is_none_or(|last| last["event"] != "over") {
        let some = agent.ask(&json!({"do": "events", "wait_ms": 10_000})).unwrap();
        assert_eq!(some["lost"], 0);
        all.extend(some["events"].as_array().unwrap().iter().cloned());
    }
    all
}

/// A sweep by an agent, to its end.
fn by_agent(service: &Planted, seconds: u64) -> Found {
    let mut agent = Agent::start().unwrap();
    assert_eq!(agent.ask(&ask(service, seconds)).unwrap(), json!({"sweeping": true}));
    let events = events(&mut agent);
    let has = |key: &str, value: &str| events.iter().any(|event| event[key] == value);
    assert!(has("step", "census") && has("phase", "test") && has("event", "slices"), "{events:?}");
    let json = agent.ask(&json!({"do": "stop"})).unwrap()["experiment"].clone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json");
    fs::write(&file, json.to_string()).unwrap();
    // The command makes the same of what the agent has recorded.
    let path = file.to_str().unwrap();
    let again = tool::run(&["report", "--json", path], PATIENCE).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&again.stdout).unwrap(), json);
    let printed = tool::run(&["report", path], PATIENCE).unwrap().stdout;
    Found { json, printed }
}

/// What a program prints that is like `speed-bump-user/examples/sweep.rs`.
fn by_example(service: &Planted, seconds: u64) -> String {
    let tool = tool::path().unwrap();
    let mut example = Command::new(tool.with_file_name("sweep-example-under-test"));
    example.args([service.pid().to_string(), seconds.to_string(), "*/planted.py:unit".to_owned()]);
    let run = tool::Running::start(&mut example).unwrap().finish(Duration::from_secs(300)).unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("census: counting"), "{}", run.stderr);
    run.stdout
}

#[test]
fn a_sweep_by_the_agent_finds_what_the_command_finds() {
    let Some(service) = planted("shadow") else { return };
    service.decided_by(&RULES, &["render", "score"], "15s", &UNIT, &VERDICTS);
    let mut found = by_agent(&service, 15);
    for seconds in [40, 100] {
        if VERDICTS.iter().any(|(name, verdict)| found.is_open(name, verdict)) {
            println!("undecided, or disturbed:\n{}", found.printed);
            found = by_agent(&service, seconds);
        }
    }
    found.assert_verdicts(&VERDICTS);
    assert_eq!(found.json["seed"], 1);
}

#[test]
fn a_sweep_by_a_program_finds_what_the_command_finds() {
    let Some(service) = planted("shadow") else { return };
    // It chooses the functions itself, and does not know the clients: so its findings matter.
    let is_found = |printed: &str| printed.starts_with("render ") && printed.contains("matters");
    let mut printed = by_example(&service, 25);
    for seconds in [50, 100] {
        if !is_found(&printed) {
            println!("undecided, or disturbed:\n{printed}");
            printed = by_example(&service, seconds);
        }
    }
    assert!(is_found(&printed), "{printed}");
}

/// Nothing else runs beside it; interrupted, it has what there is; and then a session can begin.
#[test]
fn an_agent_stops_a_sweep_and_has_what_it_measured() {
    let Some(service) = planted_tiny("shadow") else { return };
    let mut agent = Agent::start().unwrap();
    agent.ask(&ask(&service, 60)).unwrap();
    let prepare = json!({"do": "prepare", "pids": [service.pid()], "targets": ["*/planted.py:render"]});
    for request in [prepare.clone(), ask(&service, 60), json!({"do": "start"}), json!({"do": "snapshot"})] {
        assert_eq!(agent.error(&request).unwrap()["kind"], "state", "{request}");
    }
    let mut heard = Vec::new();
    while !heard.iter().any(|event: &Value| event["event"] == "slices") {
        let some = agent.ask(&json!({"do": "events", "wait_ms": 10_000})).unwrap();
        heard.extend(some["events"].as_array().unwrap().iter().cloned());
    }
    let experiment = agent.ask(&json!({"do": "stop"})).unwrap()["experiment"].clone();
    assert_eq!(experiment["aborted"], "it was stopped", "{experiment}");
    assert!(!experiment["slices"].as_array().unwrap().is_empty());
    agent.ask(&prepare).unwrap();
    agent.ask(&json!({"do": "start"})).unwrap();
    agent.ask(&json!({"do": "stop"})).unwrap();
}

/// It refuses the same as the command, before anything starts.
#[test]
fn an_agent_refuses_sweeps_that_cannot_be() {
    let mut agent = Agent::start().unwrap();
    let own = std::process::id();
    for (more, kind, words) in [
        (json!({"worth": 2.0}), "usage", "more than 0 and less than 1"),
        (json!({"doses": [0.1, -1.0]}), "usage", "more than 0 and less than 1"),
        (json!({"units": [{"metric": "a:b"}]}), "usage", "write prometheus:URL#name"),
        (json!({"units": ["sockets", "sockets"]}), "usage", "is named twice"),
        (json!({"guards": ["p9<5"]}), "request", "is not a guard"),
        (json!({"seconds": 5}), "request", "unknown field"),
        (json!({"pids": []}), "request", "`pids` is empty"),
    ] {
        let mut request = json!({"do": "sweep", "pids": [own]});
        let all = request.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        let error = agent.error(&request).unwrap();
        assert_eq!(error["kind"], kind, "{request}: {error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{request}: {error}");
    }
}
