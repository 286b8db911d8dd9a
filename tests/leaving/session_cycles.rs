//! Attaching and detaching again and again, while eight threads call what is probed.

#![allow(clippy::unwrap_used)]

use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use speed_bump_linux::{kernel::KernelFacts, process::Process};
use speed_bump_session::{
    calibrate,
    engine::EngineChoice,
    policy::{Dose, PolicyTable},
    probe::{cost::Costs, resolve::Resolver},
    python::entry_source::EntryChoice,
    session::{Settings, bpf::BpfSession, stop::Stop},
    targets::ParsedTargets,
};
use speed_bump_testing::{
    Attached, Fixture, Service, session::obstacle, side_by_side, skip, text, wait::wait_until,
};
use speed_bump_units::units::{Nanos, Pid};

const TARGETS: &str = "native:*/service:*hot*\nnative:*/libwork.so:work_*\nusdt:*:service:*\n";

/// As many attaches and detaches as the process must take.
const CYCLES: u32 = 200;

fn busy() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("8")).unwrap();
    (fixture, service)
}

/// Everything is as if nobody had ever attached, and all threads still work.
fn is_sound(fixture: &Fixture, mut service: Service) {
    for file in [fixture.program(), &fixture.library()] {
        assert_eq!(text::differences(service.pid(), file).unwrap(), [0_u64; 0]);
    }
    // Answers only when every worker has come to the end of its round.
    service.ask("pause").unwrap();
    let report = service.ask("report").unwrap();
    let semaphore = report.iter().find(|event| event["event"] == "semaphore").unwrap();
    assert_eq!(semaphore["value"], 0);
    // A round calls each of these once, and the tests call none of them: no call was lost or made twice.
    let calls =
        |name: &str| report.iter().find(|event| event["name"] == name).unwrap()["calls"].as_u64().unwrap();
    let rounds = calls("hot");
    for name in ["outer", "leaf", "aliased", "probed", "probed_too", "work_hot", "work_outer", "work_leaf"] {
        assert_eq!(calls(name), rounds, "{name}");
    }
    service.ask("resume").unwrap();
    wait_until("the workers work", || Ok(service.function("hot")?.calls > rounds)).unwrap();
    service.ask("pause").unwrap();
    service.ask("call cold 1000").unwrap();
    assert!(service.quit().unwrap().success());
}

#[test]
fn two_hundred_sessions_on_a_busy_process() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = busy();
    let file = fixture.folder().join("targets.txt");
    std::fs::write(&file, TARGETS).unwrap();
    let targets = Arc::new(ParsedTargets::load(&file, false).unwrap().decide(|_| false));
    let calibration = calibrate::measure(&KernelFacts::read()).unwrap();
    let settings = Settings {
        policies: PolicyTable::new(&targets, Dose { delay: Nanos(1_000), frequency: 1 }, EngineChoice::Auto),
        start_after: Duration::ZERO,
        duration: None,
        children: true,
        strict: false,
        is_guess: false,
        inject_timeout: Duration::from_secs(2),
        times: false,
        may_time: false,
        callers: false,
        bound: None,
    };
    let pid = Pid::new(service.pid()).unwrap();
    let service = Mutex::new(service);
    let ask = |what: &str| service.lock().unwrap().ask(what);
    // Two sessions at a time, whose sites are the same.
    let cycles: Vec<u32> = (0..CYCLES).collect();
    side_by_side::on_each(&cycles, |cycle| {
        let costs = Costs::measured(calibration.clone());
        let resolver = Resolver::new(Arc::clone(&targets), costs, EntryChoice::Auto, true);
        let process = Process::open(pid).unwrap();
        let plan = resolver.plan(&process).unwrap();
        let mut session =
            BpfSession::start(resolver, settings.clone(), vec![(process, plan)], Stop::default()).unwrap();
        if cycle % 20 == 0 {
            // Long enough attached to see calls of every target.
            let all = || session.report().targets.iter().all(|target| target.delayed > 0);
            wait_until("every target has been called", || Ok(all())).unwrap();
            ask("call cold 10").unwrap();
        }
        session.detach();
        assert_eq!(session.report().warnings, [""; 0]);
    });
    is_sound(&fixture, service.into_inner().unwrap());
}

#[test]
fn sessions_that_are_killed_on_a_busy_process() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = busy();
    for _ in 0..10 {
        let session = Attached::start(service.pid(), TARGETS, &["--delay", "20us"]).unwrap();
        service.ask("call cold 10").unwrap();
        session.kill().unwrap();
    }
    // The last one's links go after its process: a session that ends in order waits for them.
    Attached::start(service.pid(), TARGETS, &[]).unwrap().stop().unwrap();
    is_sound(&fixture, service);
}
