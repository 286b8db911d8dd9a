//! The load that a sweep starts itself: it comes before the first sample, and ends with the sweep, however
//! that ends.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf, process::Command};

use rustix::process::Signal;
use serde_json::Value;
use speed_bump_testing::{
    places, pythons,
    pythons::Form,
    tool::{self, Run, Running},
    wait::{PATIENCE, wait_until},
};

use crate::{
    commands::{processes, runs, tells_of_itself},
    planted::{Planted, planted_with},
};

/// A service without clients.
struct Served {
    service: Planted,
    folder: tempfile::TempDir,
}

#[track_caller]
fn served() -> Option<Served> {
    let folder = tempfile::tempdir().unwrap();
    let service = planted_with("served", &[folder.path().join("socket").to_str().unwrap()])?;
    Some(Served { service, folder })
}

impl Served {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command of clients that ask for so many seconds.
    fn asks(&self, seconds: f64) -> String {
        let python = pythons().iter().rfind(|python| python.form != Form::Container).unwrap();
        let script = places::fixtures().join("asks.py");
        let program = python.interpreter().get_program().to_string_lossy().into_owned();
        format!("{program} {} {} {seconds}", script.display(), self.file("socket").display())
    }

    fn start(&self, load: &str, flags: &[&str]) -> Running {
        let mut command = Command::new(tool::path().unwrap());
        command.args(["sweep", "--pid", &self.service.pid().to_string(), "--closed-loop", "--load", load]);
        command.args(["--json", self.file("json").to_str().unwrap()]);
        Running::start(command.args(flags)).unwrap()
    }

    fn found(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.file("json")).unwrap()).unwrap()
    }
}

fn shown(run: &Run) -> String {
    format!("{}\n{}", run.stdout, run.stderr)
}

#[track_caller]
fn assert_gone(processes: &[String]) {
    wait_until("the load has ended", || Ok(!processes.iter().any(|pid| runs(pid)))).unwrap();
}

const TWO: [&str; 4] = ["-t", "*/planted.py:score", "-t", "*/planted.py:render"];

/// The gaps are not taken for effects of delays, nor for clients that delays drive away.
#[test]
fn a_short_load_is_started_again_until_the_sweep_ends() {
    let Some(service) = served() else { return };
    let file = service.file("processes");
    let load = format!("echo $$ > {0}.new; mv {0}.new {0}; exec {1}", file.display(), service.asks(4.0));
    let run = service.start(&load, &[&TWO[..], &["--for", "30s"]].concat()).finish(2 * PATIENCE).unwrap();
    let (found, shown) = (service.found(), shown(&run));
    assert_eq!(run.status.code(), Some(0), "{shown}");
    assert!(run.stderr.contains("load: started `echo "), "{shown}");
    assert_eq!(found["validity"]["holds"], true, "{shown}");
    let times = found["load"]["started_again_ns"].as_array().unwrap().len();
    assert!(times >= 2, "{times}\n{shown}");
    assert!(run.stdout.contains(&format!("and was started again {times} times")), "{shown}");
    let slices = found["slices"].as_array().unwrap();
    let has_units = |slice: &Value| slice["units"].as_f64() > Some(0.0);
    assert!(
        slices.iter().all(|slice| slice["marks"] != serde_json::json!([]) || has_units(slice)),
        "{shown}"
    );
    for (name, wrong) in [("score", "matters"), ("render", "does-not-matter")] {
        let factors = found["factors"].as_array().unwrap();
        let factor = factors.iter().find(|factor| factor["name"] == name).unwrap();
        assert_ne!(factor["verdict"], wrong, "{shown}");
    }
    assert_gone(&processes(&file));
}

/// Before anything is sampled.
#[test]
fn a_load_that_cannot_begin_is_told_with_what_it_said() {
    let Some(service) = served() else { return };
    let broken = service.start("echo no such host >&2; exit 7", &["--for", "30s"]).finish(PATIENCE).unwrap();
    assert_eq!(broken.status.code(), Some(2), "{}", shown(&broken));
    let why = "the load failed: `echo no such host >&2; exit 7` ended (exit status: 7): no such host";
    assert!(broken.stderr.contains(why), "{}", shown(&broken));
    let brief = service.start("sleep 1000 & true", &["--for", "30s"]).finish(PATIENCE).unwrap();
    assert_eq!(brief.status.code(), Some(2), "{}", shown(&brief));
    assert!(brief.stderr.contains("a load lasts for a second at least"), "{}", shown(&brief));
}

#[test]
fn a_load_that_asks_for_nothing_is_not_waited_for_for_ever() {
    let Some(service) = served() else { return };
    for flags in [&TWO[..], &[]] {
        let more = ["--for", "30s", "--wait-load", "1s"];
        let run = service.start("sleep 1000", &[flags, &more].concat()).finish(PATIENCE).unwrap();
        assert_eq!(run.status.code(), Some(2), "{}", shown(&run));
        let why = "--sockets: no unit of work was done within 1s after the load was started: `sleep 1000`";
        assert!(run.stderr.contains(why), "{}", shown(&run));
    }
}

#[test]
fn a_load_that_breaks_leaves_no_verdict() {
    let Some(service) = served() else { return };
    let bad = service.file("bad");
    let load = format!(
        "{} & asks=$!; while test ! -e {}; do sleep 0.05; done; kill $asks; echo broken >&2; exit 9",
        service.asks(1000.0),
        bad.display()
    );
    let sweep = service.start(&load, &[&TWO[..], &["--for", "40s"]].concat());
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    fs::write(&bad, "").unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    let (found, shown) = (service.found(), shown(&run));
    assert_eq!(run.status.code(), Some(8), "{shown}");
    assert!(run.stdout.starts_with("No verdict: the load failed: `"), "{shown}");
    assert!(run.stderr.contains(" ended (exit status: 9): broken"), "{shown}");
    let factors = found["factors"].as_array().unwrap();
    assert!(factors.iter().all(|factor| factor["verdict"] == "undecided"), "{shown}");
}

/// Whatever a sweep is stopped in.
#[test]
fn a_load_ends_with_a_sweep_that_is_stopped() {
    let Some(service) = served() else { return };
    let file = service.file("processes");
    let load = format!("{}; {}", tells_of_itself(&file), service.asks(1000.0));
    // Without units there is nothing to sample.
    for stopped_in in ["sample: sampling stacks", "census: a unit takes "] {
        let mut sweep = service.start(&load, &["--for", "60s"]);
        sweep.wait_for_stderr(stopped_in, PATIENCE).unwrap();
        let left = processes(&file);
        assert!(left.len() == 2 && left.iter().all(|pid| runs(pid)), "{left:?}");
        sweep.signal(Signal::INT).unwrap();
        let run = sweep.finish(PATIENCE).unwrap();
        assert!(!run.stderr.contains("the load failed"), "{}", shown(&run));
        assert_gone(&left);
        fs::remove_file(&file).unwrap();
    }
}
