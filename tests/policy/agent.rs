//! The tool driven by another program: requests and answers in JSON.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use speed_bump_testing::{
    Agent, Fixture, Service,
    session::{obstacle, obstacle_to_frequency},
    skip, text,
};

const TARGETS: [&str; 2] = ["native:*/service:hot", "native:*/libwork.so:work_*"];

/// A service whose workers are paused, and an agent that has attached to it.
struct Driven {
    agent: Agent,
    service: Service,
    fixture: Fixture,
}

impl Driven {
    fn start(threads: &str) -> Self {
        let fixture = Fixture::service().unwrap();
        let mut service = Service::start(Command::new(fixture.program()).arg(threads)).unwrap();
        service.ask("pause").unwrap();
        let mut agent = Agent::start().unwrap();
        let prepare = json!({"do": "prepare", "pids": [service.pid()], "targets": TARGETS});
        let prepared = agent.ask(&prepare).unwrap();
        assert_eq!(prepared["processes"][0]["pid"], service.pid());
        assert_eq!(prepared["targets"][1]["pattern"], "native:*/libwork.so:work_*");
        assert_eq!(agent.ask(&json!({"do": "start"})).unwrap(), json!({"started": true}));
        Self { agent, service, fixture }
    }

    fn set(&mut self, doses: &Value) -> u64 {
        self.agent.ask(&json!({"do": "set", "doses": doses})).unwrap()["at_ns"].as_u64().unwrap()
    }

    /// What was counted of a function.
    fn seen(&mut self, name: &str) -> Value {
        let snapshot = self.agent.ask(&json!({"do": "snapshot"})).unwrap();
        let functions = snapshot["functions"].as_array().unwrap();
        functions.iter().find(|function| function["name"] == name).unwrap().clone()
    }

    fn probes(&self) -> usize {
        text::differences(self.service.pid(), self.fixture.program()).unwrap().len()
    }
}

#[test]
fn targets_come_and_go() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut driven = Driven::start("0");
    assert_eq!(driven.probes(), 1);
    let ask = json!({"do": "change-targets", "add": ["native:*/service:outer delay=5us"], "drop": [0]});
    let changed = driven.agent.ask(&ask).unwrap();
    assert_eq!(changed["targets"], json!([2]));
    assert!(changed["at_ns"].is_u64(), "{changed}");
    assert_eq!(driven.probes(), 1, "one went, and one came");
    for name in ["hot", "outer"] {
        driven.service.ask(&format!("call {name} 10")).unwrap();
    }
    let seen = |driven: &mut Driven, name| {
        let seen = driven.seen(name);
        [seen["calls"].as_u64().unwrap(), seen["requested_ns"].as_u64().unwrap()]
    };
    assert_eq!((seen(&mut driven, "hot"), seen(&mut driven, "outer")), ([0, 0], [10, 50_000]));
    driven.set(&json!([{"target": 2, "delay_ns": 1_000}]));
    driven.service.ask("call outer 10").unwrap();
    assert_eq!(seen(&mut driven, "outer"), [20, 60_000]);
    for (add, drop, words) in [
        (json!([]), json!([9]), "there is no target 9"),
        (json!(["!native:*:x"]), json!([]), "what is excluded cannot change"),
        (json!(["nonsense"]), json!([]), "nonsense"),
        (json!(["json:loads"]), json!([1]), "began without any"),
    ] {
        let ask = json!({"do": "change-targets", "add": add, "drop": drop});
        let error = driven.agent.ask(&ask).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // Nothing of what was refused has happened.
    driven.service.ask("call work_hot 10").unwrap();
    assert_eq!(seen(&mut driven, "work_hot"), [10, 0]);
}

#[test]
fn lines_and_patterns_do_where_numbers_would() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut driven = Driven::start("0");
    let about = driven.agent.ask(&json!({"do": "about"})).unwrap();
    assert_eq!(about["pids"], json!([driven.service.pid()]));
    let hot = json!({"pattern": "native:*/service:hot", "delay_ns": 0, "frequency": 1, "functions": 1});
    assert_eq!((&about["targets"][0], about["targets"].as_array().unwrap().len()), (&hot, 2));

    let lines = ["native:*/service:hot delay=20us", "native:*:work_hot delay=7us"];
    let doses = json!([{"target": 1, "delay_ns": 3_000}]);
    let set = driven.agent.ask(&json!({"do": "set", "doses": doses, "lines": lines})).unwrap();
    let line = |targets: u32, delay: u64| json!({"targets": targets, "functions": 1, "delay_ns": [delay]});
    assert_eq!(set["lines"], json!([line(1, 20_000), line(0, 7_000)]));
    for name in ["hot", "work_hot", "work_leaf"] {
        driven.service.ask(&format!("call {name} 10")).unwrap();
    }
    let requested = ["hot", "work_hot", "work_leaf"].map(|name| driven.seen(name)["requested_ns"].clone());
    assert_eq!(requested, [json!(200_000), json!(70_000), json!(30_000)]);

    let ask = json!({"do": "change-targets", "add": ["native:*/service:outer delay=5us"],
        "drop": ["native:*/libwork.so:work_*", 0]});
    let changed = driven.agent.ask(&ask).unwrap();
    assert_eq!((&changed["targets"], &changed["dropped"]), (&json!([2]), &json!([1, 0])));
    assert_eq!((&changed["functions"], &changed["delay_ns"]), (&json!(1), &json!([5_000])));
    let about = driven.agent.ask(&json!({"do": "about"})).unwrap();
    assert_eq!(about["targets"].as_array().unwrap().len(), 1);

    for (request, kind, word) in [
        (json!({"do": "set"}), "request", "`lines`"),
        (json!({"do": "set", "lines": ["native:*/service:outer"]}), "usage", "what is to change?"),
        // Nothing of what is asked for at once happens then.
        (
            json!({"do": "set", "lines": ["native:*/service:outer delay=9us", "*:f delay=1us"]}),
            "usage",
            "*:f",
        ),
        (json!({"do": "change-targets", "drop": ["*:f"]}), "usage", "no target of the session matches"),
    ] {
        let error = driven.agent.error(&request).unwrap();
        assert_eq!(error["kind"], kind, "{request}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{request}: {error}");
    }
    driven.service.ask("call outer 10").unwrap();
    assert_eq!(driven.seen("outer")["requested_ns"], 50_000);
}

#[test]
fn doses_are_set_and_calls_counted() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let mut driven = Driven::start("0");
    assert_eq!(driven.agent.first()["schema"], "speed-bump/agent/1");
    driven.service.ask("call hot 10").unwrap();
    let hot = driven.seen("hot");
    assert_eq!([&hot["calls"], &hot["delayed"], &hot["target"]], [&json!(10), &json!(0), &json!(0)]);

    // Of a target, and of one function.
    let work_hot = driven.seen("work_hot")["function"].clone();
    let first = driven.set(&json!([{"target": 0, "delay_ns": 20_000, "frequency": 2}]));
    let second =
        driven.set(&json!([{"function": work_hot, "delay_ns": 7_000}, {"target": 1, "delay_ns": 3_000}]));
    assert!(first < second);
    for name in ["hot", "work_hot", "work_leaf"] {
        driven.service.ask(&format!("call {name} 10")).unwrap();
    }
    let requested = ["hot", "work_hot", "work_leaf"].map(|name| driven.seen(name)["requested_ns"].clone());
    assert_eq!(requested, [json!(100_000), json!(70_000), json!(30_000)]);

    let short = driven.agent.ask(&json!({"do": "snapshot", "names": false})).unwrap();
    assert!(
        short["functions"][0].get("name").is_none() && short["functions"][0]["calls"].is_u64(),
        "{short}"
    );
    let report = driven.agent.ask(&json!({"do": "report"})).unwrap();
    assert_eq!(report["targets"][0]["requested_ns"], 20_000);

    let stopped = driven.agent.ask(&json!({"do": "stop"})).unwrap();
    assert_eq!(
        (&stopped["ended"], &stopped["report"]["targets"][0]["calls"]),
        (&json!("stopped"), &json!(20))
    );
    assert_eq!(driven.probes(), 0);
    assert!(driven.agent.close().unwrap().success());
}

#[test]
fn every_error_is_an_answer_and_the_next_request_is_taken() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut driven = Driven::start("0");
    for (request, kind, word) in [
        (json!({"do": "dance"}), "request", "dance"),
        (json!({"do": "start"}), "state", "prepare"),
        (json!({"do": "prepare", "pids": [1], "targets": TARGETS}), "state", "stop"),
        (json!({"do": "set", "doses": [{"target": 2, "delay_ns": 1}]}), "usage", "no target 2"),
        (json!({"do": "set", "doses": [{"function": 999, "delay_ns": 1}]}), "request", "no function 999"),
        (
            json!({"do": "set", "doses": [{"target": 0, "delay_ns": 20_000_000_000_u64}]}),
            "request",
            "longest",
        ),
    ] {
        let error = driven.agent.error(&request).unwrap();
        assert_eq!(error["kind"], kind, "{request}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{request}: {error}");
    }
    driven.set(&json!([{"target": 0, "delay_ns": 1_000}]));
    driven.agent.ask(&json!({"do": "stop"})).unwrap();
    let nothing = json!({"do": "prepare", "pids": [driven.service.pid()], "targets": ["native:*:no_such"],
        "strict": true});
    let error = driven.agent.error(&nothing).unwrap();
    assert_eq!(
        (&error["kind"], &error["nothing"][0]["line"]),
        (&json!("nothing-selected"), &json!(1)),
        "{error}"
    );
    let wrong = json!({"do": "prepare", "pids": [driven.service.pid()], "targets": ["native:f"]});
    assert_eq!(driven.agent.error(&wrong).unwrap()["kind"], "usage");
}

#[test]
fn what_becomes_of_processes_is_told() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut driven = Driven::start("0");
    let mut events = Vec::new();
    let mut wait_for = |driven: &mut Driven, kind: &str, pid: Value| {
        let is_it = |event: &Value| event["event"] == kind && (pid.is_null() || event["pid"] == pid);
        while !events.iter().any(is_it) {
            let taken = driven.agent.ask(&json!({"do": "events", "wait_ms": 10_000})).unwrap();
            let new = taken["events"].as_array().unwrap();
            assert!(!new.is_empty(), "no {kind} {pid}: {events:?}");
            events.extend(new.iter().cloned());
        }
        events.iter().position(is_it).unwrap()
    };
    let pid = json!(driven.service.pid());
    let covered = wait_for(&mut driven, "covered", pid.clone());
    driven.service.ask("fork").unwrap();
    wait_for(&mut driven, "covered", Value::Null);
    kill_process(Pid::from_raw(driven.service.pid()).unwrap(), Signal::KILL).unwrap();
    let gone = wait_for(&mut driven, "gone", pid);
    let over = wait_for(&mut driven, "over", Value::Null);
    assert!(covered < gone && gone < over);
    // The session is over, and what it counted is there.
    let error = driven.agent.error(&json!({"do": "set", "doses": [{"target": 0, "delay_ns": 1}]})).unwrap();
    assert_eq!(error["kind"], "state", "{error}");
    driven.agent.ask(&json!({"do": "snapshot"})).unwrap();
    assert_eq!(driven.agent.ask(&json!({"do": "stop"})).unwrap()["ended"], "target-gone");
}

#[test]
fn the_end_of_the_input_and_signals_detach() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for signal in [None, Some(Signal::TERM), Some(Signal::INT)] {
        let mut driven = Driven::start("0");
        driven.set(&json!([{"target": 0, "delay_ns": 1_000_000}]));
        assert!(driven.probes() > 0);
        let agent = Pid::from_raw(driven.agent.pid()).unwrap();
        let status = match signal {
            Some(signal) => kill_process(agent, signal).map(|()| driven.agent.wait()).unwrap(),
            None => {
                let Driven { agent, service, fixture } = driven;
                let status = agent.close();
                driven = Driven { agent: Agent::start().unwrap(), service, fixture };
                status
            }
        };
        assert!(status.unwrap().success(), "{signal:?}");
        assert_eq!(driven.probes(), 0, "{signal:?}");
        assert!(driven.service.quit().unwrap().success());
    }
}

/// Bytes of a process that are in memory.
fn resident(pid: i32) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

/// Changes doses while a service is at work. More by hand: SPEED_BUMP_CHANGES=100000.
#[test]
fn each_of_many_changes_holds_on_a_busy_service_and_no_call_is_lost() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    const CHECKED: u64 = 250;
    let changes = std::env::var("SPEED_BUMP_CHANGES").ok().and_then(|count| count.parse().ok());
    let changes: u64 = changes.unwrap_or(2_000);
    let mut driven = Driven::start("2");
    let function = driven.seen("work_hot")["function"].clone();
    driven.service.ask("reset").unwrap();
    driven.service.ask("resume").unwrap();
    let mut total = [0, 0];
    let mut before = None;
    let began = std::time::Instant::now();
    for turn in 0..changes {
        let is_checked = turn % CHECKED == CHECKED - 1;
        // The delay of unobserved workers is short.
        let us = if is_checked { 100 << (turn / CHECKED % 3) } else { turn % 3 };
        if is_checked {
            driven.service.ask("pause").unwrap();
            add_calls(&mut driven, &mut total);
        }
        driven.set(
            &json!([{"target": 0, "delay_ns": 1_000 * us}, {"function": function, "delay_ns": 1_000 * us}]),
        );
        if is_checked {
            for name in ["hot", "work_hot"] {
                driven.service.ask(&format!("call {name} 3")).unwrap();
                let least = driven.service.function(name).unwrap().least_ns / 1_000;
                // The doses before it and after it are half of it at most, or twice as much and more.
                assert!(least > us * 3 / 4 && least < us * 15 / 8, "{turn}, {name}: {least} us of {us}");
            }
            add_calls(&mut driven, &mut total);
            driven.set(&json!([{"target": 0, "delay_ns": 0}, {"function": function, "delay_ns": 0}]));
            driven.service.ask("resume").unwrap();
            before.get_or_insert_with(|| resident(driven.agent.pid()));
        }
    }
    eprintln!("{changes} changes took {:?}", began.elapsed());
    driven.service.ask("pause").unwrap();
    add_calls(&mut driven, &mut total);
    let counted = ["hot", "work_hot"].map(|name| driven.seen(name)["calls"].as_u64().unwrap());
    assert_eq!(counted, total, "calls that the service made and calls that were counted");
    let grown = resident(driven.agent.pid()).saturating_sub(before.unwrap());
    assert!(grown < 4 << 20, "the agent grew by {grown} bytes");
}

/// Adds what the service called since it was asked last.
fn add_calls(driven: &mut Driven, total: &mut [u64; 2]) {
    for (total, name) in total.iter_mut().zip(["hot", "work_hot"]) {
        *total += driven.service.function(name).unwrap().calls;
    }
    driven.service.ask("reset").unwrap();
}
