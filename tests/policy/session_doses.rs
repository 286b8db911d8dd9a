//! Doses that change while a session goes on, for targets and for single functions.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, process::Command, time::Duration};

use speed_bump_session::{
    engine::{EngineChoice, EngineKind},
    policy::{Dose, Selection},
    prepare::{Prepared, Purpose, Request},
    probe::plan::SelectedFunction,
    session::{SessionError, doses::Applied, handle::Handle, run::Ended, stop::Stop},
    targets::{TargetIndex, source::TargetSource},
};
use speed_bump_testing::{
    Fixture, Service, priority,
    session::{obstacle, obstacle_to_frequency},
    skip, text,
    wait::PATIENCE,
};
use speed_bump_units::units::{Nanos, Pid};

const TARGETS: [&str; 2] = ["native:*/service:hot", "native:*/libwork.so:work_*"];
const HOT: Selection = Selection::Target(TargetIndex(0));
const WORK: Selection = Selection::Target(TargetIndex(1));

const fn dose(us: u64) -> Dose {
    Dose { delay: Nanos(1_000 * us), frequency: 1 }
}

struct Live {
    session: Handle,
    functions: BTreeMap<String, SelectedFunction>,
    service: Service,
    fixture: Fixture,
}

impl Live {
    /// Attaches with delay 0.
    fn start() -> Self {
        Self::start_with(EngineKind::Bpf, dose(0))
    }

    fn start_with(engine: EngineKind, default: Dose) -> Self {
        let fixture = Fixture::service().unwrap();
        let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
        let request = Request {
            default,
            engine: EngineChoice::Only(engine),
            inject_timeout: PATIENCE,
            children: false,
            ..Request::new(TargetSource::lines("targets", &TARGETS))
        };
        let pid = Pid::new(service.pid()).unwrap();
        let prepared = Prepared::of_processes(&[pid], &request, Purpose::Attach).unwrap();
        let session = prepared.start(Stop::default()).unwrap();
        let known = session.controls().known();
        let functions = known.iter().map(|(_, function)| (function.name.clone(), function.clone())).collect();
        Self { session, functions, service, fixture }
    }

    fn function(&self, name: &str) -> Selection {
        Selection::Function(self.functions[name].clone())
    }

    fn set(&mut self, changes: &[(Selection, Dose)]) -> Applied {
        self.session.set(changes).unwrap()
    }

    /// Calls functions ten times each.
    fn call(&mut self, names: &[&str]) {
        for name in names {
            self.service.ask(&format!("call {name} 10")).unwrap();
        }
    }

    /// What was counted of a function: calls, delayed ones, and the sum of what was requested, in us.
    fn counts(&mut self, name: &str) -> (u64, u64, u64) {
        let report = self.session.report().unwrap();
        let mut functions = report.targets.iter().flat_map(|target| &target.functions);
        let function = functions.find(|function| function.name == name).unwrap();
        (function.calls, function.delayed, function.requested_ns.0 / 1_000)
    }
}

#[test]
fn doses_of_targets_change_from_one_call_to_the_next() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut live = Live::start();
    let mut expected = (0, 0, 0);
    for us in [0, 5, 0, 12, 3] {
        let before = live.set(&[(HOT, dose(us))]);
        assert!(before.at <= live.set(&[(HOT, dose(us)), (WORK, dose(2 * us))]).at);
        live.call(&["hot", "work_hot"]);
        let delayed = if us == 0 { 0 } else { 10 };
        expected = (expected.0 + 10, expected.1 + delayed, expected.2 + 10 * us);
        assert_eq!(live.counts("hot"), expected, "{us}");
        assert_eq!(live.counts("work_hot"), (expected.0, expected.1, 2 * expected.2), "{us}");
    }
    // The report says what holds.
    let requested: Vec<_> =
        live.session.report().unwrap().targets.iter().map(|target| target.requested_ns).collect();
    assert_eq!(requested, [Nanos(3_000), Nanos(6_000)]);
}

#[test]
fn a_function_can_have_a_dose_of_its_own() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut live = Live::start();
    let work_hot = live.function("work_hot");
    live.set(&[(work_hot.clone(), dose(7))]);
    live.call(&["work_hot", "work_leaf"]);
    assert_eq!((live.counts("work_hot"), live.counts("work_leaf")), ((10, 10, 70), (10, 0, 0)));
    // That of its target is for the others.
    live.set(&[(WORK, dose(3))]);
    live.call(&["work_hot", "work_leaf"]);
    assert_eq!((live.counts("work_hot"), live.counts("work_leaf")), ((20, 20, 140), (20, 10, 30)));
    live.set(&[(work_hot, dose(0)), (WORK, dose(4))]);
    live.call(&["work_hot", "work_leaf"]);
    assert_eq!((live.counts("work_hot"), live.counts("work_leaf")), ((30, 20, 140), (30, 20, 70)));
}

#[test]
fn every_nth_call_is_delayed_from_the_change_on() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let mut live = Live::start();
    let hot = live.function("hot");
    for (frequency, delayed) in [(2, 5), (5, 7), (1, 17)] {
        live.set(&[(hot.clone(), Dose { delay: Nanos(1_000), frequency })]);
        live.call(&["hot"]);
        assert_eq!(live.counts("hot").1, delayed, "{frequency}");
    }
}

#[test]
fn a_dose_that_cannot_be_changes_nothing() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut live = Live::start();
    live.set(&[(HOT, dose(5))]);
    let error = live.session.set(&[(HOT, dose(9)), (Selection::Target(TargetIndex(2)), dose(1))]);
    assert_eq!(error.unwrap_err().to_string(), "there is no target 2: the session has 2");
    live.call(&["hot"]);
    assert_eq!(live.counts("hot"), (10, 10, 50));
}

#[test]
fn the_helper_spins_other_delays_from_the_change_on() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut live = Live::start_with(EngineKind::Signal, dose(2_000));
    priority::prefer(live.service.pid()).unwrap();
    let least_us = |live: &mut Live, name: &str| {
        live.service.ask("reset").unwrap();
        live.call(&[name]);
        live.service.function(name).unwrap().least_ns / 1_000
    };
    let mut requested = 0;
    for us in [2_000, 4_000, 2_000, 6_000, 1_000] {
        live.set(&[(HOT, dose(us)), (WORK, dose(us))]);
        for name in ["hot", "work_hot"] {
            let least = least_us(&mut live, name);
            // The doses before it and after it are half of it at most, or twice as much and more.
            assert!(least > us * 3 / 4 && least < us * 15 / 8, "{name}: {least} us of {us}");
        }
        requested += 10 * us;
    }
    assert_eq!(live.counts("hot"), (50, 50, requested));
    // There is one signal, which serves one delay.
    let error = live.session.set(&[(HOT, dose(3_000))]).unwrap_err().to_string();
    assert!(error.contains("a delay of 3ms needs a signal of its own"), "{error}");
    // A delay of 0 needs none.
    live.set(&[(HOT, dose(0))]);
    live.call(&["hot", "work_hot"]);
    assert_eq!((live.counts("hot").1, live.counts("work_hot").1), (50, 60));
    live.set(&[(HOT, dose(3_000)), (WORK, dose(0))]);
    live.call(&["hot", "work_hot"]);
    assert_eq!((live.counts("hot").1, live.counts("work_hot").1), (60, 60));
}

/// More by hand: SPEED_BUMP_CHANGES=100000.
#[test]
fn each_of_many_changes_holds_for_the_next_call() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut live = Live::start();
    let (hot, work) = (live.function("hot"), live.function("work_hot"));
    let mut expected = [(0, 0, 0); 2];
    let changes = std::env::var("SPEED_BUMP_CHANGES").ok().and_then(|count| count.parse().ok());
    for turn in 0..changes.unwrap_or(1_000) {
        let us = [turn % 4, 3 - turn % 4];
        live.set(&[(hot.clone(), dose(us[0])), (work.clone(), dose(us[1]))]);
        live.service.ask("call hot 1").unwrap();
        live.service.ask("call work_hot 1").unwrap();
        for (expected, us) in expected.iter_mut().zip(us) {
            *expected = (expected.0 + 1, expected.1 + u64::from(us > 0), expected.2 + us);
        }
    }
    assert_eq!([live.counts("hot"), live.counts("work_hot")], expected);
}

#[test]
fn snapshots_tell_what_came_between_them() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut live = Live::start();
    let hot = live.functions["hot"].clone();
    live.set(&[(HOT, dose(5))]);
    live.call(&["hot"]);
    let before = live.session.snapshot().unwrap();
    live.call(&["hot", "work_hot"]);
    let after = live.session.snapshot().unwrap();
    let between = after.since(&before);
    let stats = between.stats_of(&hot);
    assert_eq!((stats.calls, stats.delayed, stats.requested_ns), (10, 10, 50_000));
    assert_eq!(after.stats_of(&hot).calls, 20);
    assert_eq!(between.functions().map(|(_, stats)| stats.calls).sum::<u64>(), 20);
    assert!(before.at < after.at);
}

#[test]
fn a_session_that_was_stopped_has_left() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let live = Live::start();
    let probed = || text::differences(live.service.pid(), live.fixture.program()).unwrap().len();
    assert!(probed() > 0);
    assert!(live.session.wait_for(Duration::from_millis(1)).unwrap().is_none());
    live.session.stop();
    let outcome = live.session.wait().unwrap();
    assert_eq!(outcome.ended.unwrap(), Ended::Stopped);
    assert_eq!(outcome.report.targets.len(), 2);
    assert_eq!(probed(), 0);
    assert!(live.session.report().is_none());
    assert!(matches!(live.session.wait(), Err(SessionError::Lost)));
}
