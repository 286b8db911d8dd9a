//! Services in which it is known what matters (tests/fixtures/planted.py): `sweep` finds it.

#![allow(clippy::unwrap_used)]

use std::{fs, time::Duration};

use serde_json::Value;
use speed_bump_testing::{
    PythonBuild, Service, places, pythons,
    pythons::Form,
    session::obstacle,
    skip,
    tool::{self, Run},
};

use crate::{share::Share, sweep::assert_same_report};

pub(crate) const UNIT: [&str; 2] = ["--progress", "*/planted.py:unit"];

/// The rule that separates functions whose delays show fully from those whose delays are hidden. These
/// services run beside each other, and on machines that others use too, so every delay shows a little. No
/// user waits for their units, so delays may be as long as gives an early result.
const ALL_OR_NOTHING: [&str; 6] = ["--threshold", "0.25", "--worth", "1.5%", "--max-slowdown", "30%"];

/// A running service, with its share of the machine.
pub(crate) struct Planted {
    pub(crate) service: Service,
    _share: Share,
}

/// Starts one; `None` if this machine has no Python for it, or cannot attach to it, which is reported as a
/// skip.
#[track_caller]
pub(crate) fn planted(kind: &str) -> Option<Planted> {
    start(kind, &[], Share::small)
}

/// The same with more arguments, which may be paths: a container has other ones.
#[track_caller]
pub(crate) fn planted_with(kind: &str, more: &[&str]) -> Option<Planted> {
    start(kind, more, Share::small)
}

/// The same for one that keeps a processor busy, or has more than one process.
#[track_caller]
pub(crate) fn planted_large(kind: &str) -> Option<Planted> {
    start(kind, &[], Share::large)
}

/// The same for one without an expected verdict.
#[track_caller]
pub(crate) fn planted_tiny(kind: &str) -> Option<Planted> {
    start(kind, &[], Share::tiny)
}

/// The same, beside no other service.
#[track_caller]
pub(crate) fn planted_alone(kind: &str) -> Option<Planted> {
    start(kind, &[], Share::whole)
}

#[track_caller]
fn start(kind: &str, more: &[&str], share: fn() -> Share) -> Option<Planted> {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return None;
    }
    let is_fit = |python: &&PythonBuild| more.is_empty() || python.form != Form::Container;
    let Some(python) = pythons().iter().rfind(is_fit) else {
        skip!("this machine has no Python 3.8 or newer");
        return None;
    };
    let script = places::fixtures().join("planted.py");
    let share = share();
    let service = Service::start(python.command(&script).arg(kind).args(more)).unwrap();
    Some(Planted::new(service, share))
}

impl Planted {
    /// A running service that has this share.
    pub(crate) fn new(service: Service, share: Share) -> Self {
        Self { service, _share: share }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.service.pid()
    }

    /// Sweeps it to the end.
    pub(crate) fn sweep(&self, arguments: &[&str]) -> Run {
        let pid = self.pid().to_string();
        let all: Vec<&str> = ["sweep", "--pid", &pid].into_iter().chain(arguments.iter().copied()).collect();
        tool::run(&all, Duration::from_secs(300)).unwrap()
    }

    /// The findings of sweeps of these functions, with their verdicts. If the machine is busy with other
    /// work, a sweep may leave them undecided, or find what is only true of a busy machine; then another,
    /// longer one is made. Any other wrong verdict is a failure, and so is the last one.
    #[track_caller]
    pub(crate) fn decided(&self, unit: &[&str], verdicts: &[(&str, &str)]) -> Found {
        let functions: Vec<&str> = verdicts.iter().map(|(name, _)| *name).collect();
        self.decided_of(&functions, "15s", unit, verdicts)
    }

    /// The same for functions that may have to be found first, with the time of the first sweep.
    #[track_caller]
    pub(crate) fn decided_of(
        &self,
        functions: &[&str],
        first: &str,
        unit: &[&str],
        verdicts: &[(&str, &str)],
    ) -> Found {
        self.decided_by(&ALL_OR_NOTHING, functions, first, unit, verdicts)
    }

    /// The same, by these rules.
    #[track_caller]
    pub(crate) fn decided_by(
        &self,
        rules: &[&str],
        functions: &[&str],
        first: &str,
        unit: &[&str],
        verdicts: &[(&str, &str)],
    ) -> Found {
        let found_in = |time| self.found(functions, unit, &[rules, &["--for", time]].concat());
        let mut found = found_in(first);
        for time in ["40s", "100s"] {
            if verdicts.iter().any(|(name, verdict)| found.is_open(name, verdict)) {
                println!("undecided, or disturbed:\n{}", found.printed);
                found = found_in(time);
            }
        }
        found.assert_verdicts(verdicts);
        found
    }

    /// What a sweep of these functions finds. The report is the same when it is made again.
    #[track_caller]
    pub(crate) fn found(&self, functions: &[&str], unit: &[&str], more: &[&str]) -> Found {
        let folder = tempfile::tempdir().unwrap();
        let json = folder.path().join("out.json");
        let targets: Vec<String> = functions.iter().map(|name| format!("*/planted.py:{name}")).collect();
        let mut arguments: Vec<&str> = targets.iter().flat_map(|target| ["-t", target]).collect();
        arguments.extend(unit.iter().chain(more));
        arguments.extend(["--json", json.to_str().unwrap()]);
        let run = self.sweep(&arguments);
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        assert_same_report(&json, &run.stdout);
        let json = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        Found { json, printed: run.stdout }
    }
}

pub(crate) struct Found {
    pub(crate) json: Value,
    pub(crate) printed: String,
}

impl Found {
    #[track_caller]
    pub(crate) fn factor(&self, name: &str) -> &Value {
        let found = self.find(name);
        assert!(found.is_some(), "{name} is not there\n{}", self.printed);
        found.unwrap()
    }

    fn find(&self, name: &str) -> Option<&Value> {
        self.json["factors"].as_array().unwrap().iter().find(|factor| factor["name"] == name)
    }

    /// Whether more time would help: the function is undecided, or was not found yet. The findings of a
    /// disturbed sweep are true for a disturbed service, in which nothing was planted.
    pub(crate) fn is_open(&self, name: &str, verdict: &str) -> bool {
        self.find(name).is_none_or(|factor| {
            factor["verdict"] == "undecided" || self.was_disturbed() && factor["verdict"] != verdict
        })
    }

    /// Whether the report says that delays took longer than requested, or that other processes took
    /// processors.
    fn was_disturbed(&self) -> bool {
        let is_above = |number: &Value, most: f64| number.as_f64().is_some_and(|number| number > most);
        is_above(&self.json["validity"]["delivered_over_asked"], 1.1)
            || is_above(&self.json["around"]["processors_busy"], 0.9)
    }

    #[track_caller]
    pub(crate) fn assert_verdicts(&self, verdicts: &[(&str, &str)]) {
        for (name, verdict) in verdicts {
            assert_eq!(self.factor(name)["verdict"], *verdict, "{name}\n{}", self.printed);
        }
    }

    /// Whatever else the machine does: no other verdict than this is given, and if there is an interval, the
    /// truth is in it, or near it.
    #[track_caller]
    pub(crate) fn assert_not_wrong(&self, name: &str, verdict: &str, truth: f64) {
        let factor = self.factor(name);
        let is_right = [verdict, "undecided"].iter().any(|of| factor["verdict"] == *of);
        assert!(is_right, "{name}\n{}", self.printed);
        if factor["low"].is_number() {
            self.assert_sensitivity(name, truth);
        }
    }

    /// The truth is in the interval, or near enough to be in one of twice the width: of twenty intervals of
    /// 95 %, one misses it.
    #[track_caller]
    pub(crate) fn assert_sensitivity(&self, name: &str, truth: f64) {
        self.assert_sensitivity_within(name, truth, truth);
    }

    /// The same if the truth is between two numbers.
    #[track_caller]
    pub(crate) fn assert_sensitivity_within(&self, name: &str, least: f64, most: f64) {
        let number = |key: &str| self.factor(name)[key].as_f64().unwrap();
        let (low, high) = (number("low"), number("high"));
        let more = (high - low) / 2.0;
        assert!(low - more <= most && least <= high + more, "{name}: {low} to {high}\n{}", self.printed);
    }
}

#[test]
fn what_runs_beside_a_device_does_not_matter_and_what_follows_it_does() {
    let Some(service) = planted("shadow") else { return };
    let found = service.decided(&UNIT, &[("render", "matters"), ("score", "does-not-matter")]);
    found.assert_sensitivity("render", 1.0);
    found.assert_sensitivity("score", 0.0);
    // Three calls of 0.5 ms while the device takes 6 ms: 4.5 ms more stay hidden. Beside other programs a
    // little shows: then no delay is called hidden.
    let score = found.factor("score");
    let shows = score["low"].as_f64().is_some_and(|low| low > 0.0);
    let slack = score["slack_ns"].as_f64();
    assert!(slack.map_or(shows, |slack| slack < 6_000_000.0), "{slack:?}\n{}", found.printed);
    assert_eq!(found.json["open_loop"], false);
    assert!(found.json["verdict"].as_str().unwrap().starts_with("render "), "{}", found.printed);
}

/// One function, hidden from one of its callers and all of it from the other.
#[test]
fn a_shared_function_is_told_by_its_callers() {
    let Some(service) = planted("shared") else { return };
    let targets = ["burn caller=cold_tail", "burn caller=*/planted.py:hot_shadow"];
    let verdicts = [("burn from cold_tail", "matters"), ("burn from hot_shadow", "does-not-matter")];
    let found = service.decided_of(&targets, "15s", &UNIT, &verdicts);
    found.assert_sensitivity("burn from cold_tail", 1.0);
    found.assert_sensitivity("burn from hot_shadow", 0.0);
    let [cold, hot] = verdicts.map(|(name, _)| found.factor(name));
    assert_eq!((&cold["caller"], &hot["caller"]), (&"cold_tail".into(), &"*/planted.py:hot_shadow".into()));
    let calls = [cold, hot].map(|factor| factor["calls_per_unit"].as_f64().unwrap().round());
    assert_eq!(calls, [1.0, 3.0], "{}", found.printed);
    assert!(found.printed.contains("burn from cold_tail (planted.py:"), "{}", found.printed);
    // Three calls of four are hidden.
    let over = &found.json["over_callers"][0];
    let bound = |key: &str| over[key].as_f64().unwrap();
    assert_eq!((&over["name"], &over["arms"]), (&"burn".into(), &2.into()), "{}", found.printed);
    assert!(bound("low") < 0.35 && bound("high") > 0.15, "{over}\n{}", found.printed);
    assert!(found.printed.contains(") from all 2 callers: sensitivity 0."), "{}", found.printed);
    assert!(found.json["verdict"].as_str().unwrap().starts_with("burn from cold_tail "), "{}", found.printed);
}

/// The same where the sweep finds the function and its callers by itself.
#[test]
fn a_shared_function_is_asked_about_by_its_callers() {
    let Some(service) = planted("shared") else { return };
    let verdicts = [("burn from cold_tail", "matters"), ("burn from hot_shadow", "does-not-matter")];
    let found = service.decided_of(&[], "25s", &UNIT, &verdicts);
    found.assert_sensitivity("burn from cold_tail", 1.0);
    found.assert_sensitivity("burn from hot_shadow", 0.0);
}

/// Launches are hidden until the queue runs dry, and show from there on.
#[test]
fn launches_are_hidden_until_the_device_waits_for_them() {
    let Some(service) = planted("accelerator") else { return };
    let unit = [UNIT[0], UNIT[1], "--closed-loop"];
    let found = service.decided(&unit, &[("launch", "does-not-matter")]);
    found.assert_sensitivity("launch", 0.0);
    // A unit takes 8 ms, of which launches take 1: beyond 7 ms more, they show. What is queued hides 2 ms
    // more of a chip's 8 units, and with half a processor half as much stays hidden.
    let found = service.found(&["launch"], &unit, &["--for", "45s"]);
    found.assert_not_wrong("launch", "does-not-matter", 0.0);
    let slack = found.factor("launch")["slack_ns"].as_f64().unwrap();
    // Beside other tests the ladder has no time for its last rungs.
    let least = if found.was_disturbed() { 0.0 } else { 2_000_000.0 };
    assert!((least..11_000_000.0).contains(&slack), "{slack}\n{}", found.printed);
    assert!(found.printed.contains("launch (planted.py:"), "{}", found.printed);
}

/// Four threads that keep the GIL all the time share what each of them loses, but each keeps it from all.
#[test]
fn what_keeps_the_gil_matters() {
    let Some(service) = planted_large("gil") else { return };
    let found = service.decided(&UNIT, &[("compute", "matters")]);
    found.assert_sensitivity("compute", 1.0);
}

/// If nothing matters, no function is said to.
#[test]
fn nothing_matters_to_a_device() {
    let Some(service) = planted("nothing") else { return };
    let unit = [UNIT[0], UNIT[1], "--closed-loop"];
    let verdicts = [("score", "does-not-matter"), ("load", "does-not-matter")];
    let found = service.decided_of(&["score", "load"], "25s", &unit, &verdicts);
    let verdict = found.json["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("No function is shown to matter"), "{}", found.printed);
}

#[test]
fn the_slower_stage_of_a_pipeline_matters() {
    let Some(service) = planted("pipeline") else { return };
    let found = service.decided(&UNIT, &[("consume", "matters"), ("produce", "does-not-matter")]);
    found.assert_sensitivity("consume", 1.0);
    found.assert_sensitivity("produce", 0.0);
}

#[test]
fn what_one_lock_guards_matters() {
    let Some(service) = planted("pool") else { return };
    let found = service.decided(&UNIT, &[("inside", "matters"), ("outside", "does-not-matter")]);
    // While it is delayed, other threads come out of their sleep: some take the GIL for `outside`, before the
    // next one that has the lock.
    found.assert_sensitivity_within("inside", 1.0, 1.1);
}

/// Arrivals set the throughput: no function changes it, and there is no verdict.
#[test]
fn nothing_is_said_of_a_service_below_its_capacity() {
    let Some(service) = planted("open") else { return };
    let found = service.found(&["work"], &UNIT, &["--for", "20s"]);
    found.assert_verdicts(&[("work", "undecided")]);
    assert_eq!(found.json["open_loop"], Value::Null);
    assert!(found.json["verdict"].as_str().unwrap().starts_with("No verdict"), "{}", found.printed);
}

/// There, latency shows it.
#[test]
fn latency_tells_what_matters_below_the_capacity() {
    let Some(service) = planted("open") else { return };
    let latency = ["--latency", "*/planted.py:request"];
    let found = service.decided(&latency, &[("work", "matters"), ("log", "does-not-matter")]);
    found.assert_sensitivity("work", 1.0);
    found.assert_sensitivity("log", 0.0);
    assert_eq!((&found.json["by"], &found.json["open_loop"]), (&"latency".into(), &true.into()));
}

/// Three of a thousand functions are worth testing, and matter.
#[test]
fn three_of_a_thousand_functions_are_found() {
    let Some(service) = planted("thousand") else { return };
    let matter = [("f997", "matters"), ("f998", "matters"), ("f999", "matters")];
    let found = service.decided_of(&["f[0-9]*"], "15s", &UNIT, &matter);
    let factors = found.json["factors"].as_array().unwrap();
    let dismissed = factors.iter().filter(|factor| factor["verdict"] == "dismissed").count();
    assert_eq!((factors.len(), dismissed), (1_000, 997), "{}", found.printed);
}

/// In a loop a profiler would put the hot one on top.
#[test]
fn what_is_hot_in_a_loop_need_not_matter() {
    let Some(service) = planted_large("asyncio") else { return };
    let found = service.decided(&UNIT, &[("render", "matters"), ("score", "does-not-matter")]);
    found.assert_sensitivity("render", 1.0);
    found.assert_sensitivity("score", 0.0);
    let own = |name: &str| found.factor(name)["own_ns_per_unit"].as_f64().unwrap();
    assert!(own("score") > own("render"), "{}", found.printed);
}

/// Without any flag: the program's own functions, and requests on its sockets.
#[test]
fn nothing_has_to_be_said_of_a_server() {
    let Some(service) = planted_large("http") else { return };
    let found = service.decided_of(&[], "25s", &[], &[("render", "matters"), ("score", "does-not-matter")]);
    found.assert_sensitivity("render", 1.0);
    assert_eq!(found.json["unit"]["source"], "--sockets");
    let sampling = &found.json["sampling"];
    assert!(sampling["ticks"].as_u64().unwrap() > 20, "{sampling}");
    let seen = |name: &str| found.json["candidates"].as_array().unwrap().iter().find(|of| of["name"] == name);
    assert!(seen("render").unwrap()["sampled"]["own"].as_u64().unwrap() > 0, "{}", found.printed);
    // The thread that answers is known by its system calls.
    assert_eq!(found.factor("render")["sharing"]["with_units"]["threads"], 1, "{}", found.printed);
}

/// A loop without sockets needs no options: its unit is the function that it calls again and again.
#[test]
fn a_loop_without_sockets_has_a_unit_too() {
    let Some(service) = planted("training") else { return };
    let found = service.decided_of(&[], "25s", &["--closed-loop"], &[("backward", "matters")]);
    assert_eq!(found.json["unit"]["name"], "call of step (planted.py)", "{}", found.printed);
    assert!(found.printed.contains("--progress chooses another"), "{}", found.printed);
}

/// A thread that has nothing to do with the units, but for the GIL, which its delays keep.
#[test]
fn a_thread_that_shares_the_gil_matters() {
    let Some(service) = planted_large("background") else { return };
    let found = service.decided(&UNIT, &[("tick", "matters"), ("crunch", "matters")]);
    // The report says by which means.
    let with_units = |name: &str| &found.factor(name)["sharing"]["with_units"];
    assert_eq!((&with_units("tick")["gil"], &with_units("tick")["threads"]), (&true.into(), &0.into()));
    assert_eq!(with_units("crunch")["threads"], 1, "{}", found.printed);
    for (name, what) in [("tick", "the GIL"), ("crunch", "the same thread")] {
        let is_told =
            |line: &str| line.starts_with(&format!("in common with units: {name} (")) && line.contains(what);
        assert!(found.printed.lines().any(is_told), "{name}: {what}\n{}", found.printed);
    }
}

/// Where one thread does everything, functions are worth what they take.
#[test]
fn functions_of_one_busy_thread_are_ranked_by_what_they_take() {
    let Some(service) = planted_large("forty") else { return };
    let found = service.found(&["f[0-9]*"], &UNIT, &["--for", "35s"]);
    let factors = found.json["factors"].as_array().unwrap();
    let single: Vec<&Value> = factors.iter().filter(|factor| factor["kind"] == "python").collect();
    assert_eq!(single.len(), 40, "{}", found.printed);
    // The wrong answer would be that one of them does not matter.
    assert!(single.iter().all(|factor| factor["verdict"] != "does-not-matter"), "{}", found.printed);
    let takes_most = |factor: &Value| {
        let number = factor["name"].as_str().and_then(|name| name.strip_prefix('f')?.parse::<u32>().ok());
        number.is_some_and(|number| number >= 30)
    };
    assert!(single.iter().take(3).any(|factor| takes_most(factor)), "{}", found.printed);
}
