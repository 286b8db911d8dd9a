//! What a call of a Python function costs under the frame evaluation hook of the helper, from 3.8 to 3.11,
//! without a probe on the stub: `cargo bench -p speed-bump-tests --bench frame_hook`.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with the helper's tests")]
mod control;

use speed_bump_abi::control_block::{HelperCommand, State};
use speed_bump_session::inject::image::IMAGE;
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{self, Form},
};

use self::control::Control;

/// Sessions of each of the three cases, in turn.
const ROUNDS: usize = 12;
/// Measurements in each; the fastest of all counts.
const TIMES: usize = 40;
/// Calls in one measurement, so few that some are never interrupted.
const CALLS: usize = 10_000;

/// Nanoseconds of a call with its share of the loop.
struct Cost {
    detached: f64,
    unmatched: f64,
    matched: f64,
}

fn main() -> anyhow::Result<()> {
    println!("python   detached ns   unmatched  +ns  ratio   matched  +ns  ratio");
    for python in pythons::find()?.iter().filter(|p| p.form != Form::Container && p.minor() < (3, 12)) {
        let Cost { detached, unmatched, matched } = measure(python);
        let (major, minor, micro) = python.version;
        println!(
            "{:<8} {detached:>11.1} {unmatched:>11.1} {:>4.1} {:>6.3} {matched:>9.1} {:>4.1} {:>6.3}",
            format!("{major}.{minor}.{micro}"),
            unmatched - detached,
            unmatched / detached,
            matched - detached,
            matched / detached,
        );
    }
    Ok(())
}

fn measure(python: &PythonBuild) -> Cost {
    let mut service = Service::start(&mut python.command(&places::fixtures().join("calls.py"))).unwrap();
    let image = tempfile::Builder::new().suffix(".so").tempfile().unwrap();
    std::fs::write(image.path(), IMAGE).unwrap();
    service.ask(&format!("HELPER = ctypes.CDLL('{}')", image.path().display())).unwrap();
    let loop_ = "def loop(f):\\n    r = range(CALLS)\\n    t = time.perf_counter()\\n    \
                 for _ in r: f(1)\\n    return (time.perf_counter() - t) / CALLS * 1e9";
    service.ask(&format!("import time; CALLS = {CALLS}; exec('{loop_}', globals())")).unwrap();
    let mut cost = Cost { detached: f64::MAX, unmatched: f64::MAX, matched: f64::MAX };
    for _ in 0..ROUNDS {
        cost.detached = cost.detached.min(once(&mut service));
        cost.unmatched = cost.unmatched.min(attached(&mut service, "*/calls.py:other\n"));
        cost.matched = cost.matched.min(attached(&mut service, "*/calls.py:plain\n"));
    }
    cost
}

fn attached(service: &mut Service, targets: &str) -> f64 {
    let control = Control::new(targets, HelperCommand::Run);
    let command = format!("assert 0 == HELPER.speed_bump_attach(os.open('{}', os.O_RDWR))", control.path());
    service.ask(&command).unwrap();
    control.wait_for(State::Active);
    let cost = once(service);
    control.command(HelperCommand::Leave);
    control.wait_for(State::Left);
    cost
}

fn once(service: &mut Service) -> f64 {
    service.ask(&format!("say(event='cost', ns=min(loop(plain) for _ in range({TIMES})))")).unwrap()[0]["ns"]
        .as_f64()
        .unwrap()
}
