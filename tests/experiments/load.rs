//! Load that ends, pauses, or answers "busy" while a sweep runs.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use speed_bump_testing::{
    tool::{self, Run},
    wait::PATIENCE,
};

use crate::planted::{Planted, planted, planted_with};

/// A service, and the file with which its clients stop.
struct Loaded {
    service: Planted,
    _folder: tempfile::TempDir,
    stop: PathBuf,
}

#[track_caller]
fn loaded() -> Option<Loaded> {
    let folder = tempfile::tempdir().unwrap();
    let stop = folder.path().join("stop");
    let service = planted_with("loaded", &[stop.to_str().unwrap()])?;
    Some(Loaded { service, _folder: folder, stop })
}

impl Loaded {
    /// A sweep of the two functions that matter, whose clients stop once the functions are tested one by one.
    /// `meanwhile` is called then.
    #[track_caller]
    fn sweep(&self, more: &[&str], meanwhile: impl FnOnce(&tool::Running)) -> (Run, Value) {
        let json = self.stop.with_extension("json");
        let mut command = Command::new(tool::path().unwrap());
        command.args(["sweep", "--pid", &self.service.pid().to_string(), "--closed-loop"]);
        command.args(["-t", "*/planted.py:score", "-t", "*/planted.py:render"]);
        command.args(["--progress", "*/planted.py:unit", "--json", json.to_str().unwrap()]);
        let sweep = tool::Running::start(command.args(more)).unwrap();
        sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
        thread::sleep(Duration::from_secs(2));
        fs::write(&self.stop, "").unwrap();
        meanwhile(&sweep);
        let run = sweep.finish(2 * PATIENCE).unwrap();
        (run, read(&json))
    }
}

#[track_caller]
fn read(json: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap()
}

fn counted(found: &Value) -> Vec<&Value> {
    let slices = found["slices"].as_array().unwrap();
    slices.iter().filter(|slice| slice["marks"] == serde_json::json!([])).collect()
}

fn verdicts(found: &Value) -> Vec<&str> {
    found["factors"].as_array().unwrap().iter().filter_map(|of| of["verdict"].as_str()).collect()
}

#[test]
fn a_sweep_whose_load_ends_gives_no_verdict() {
    let Some(service) = loaded() else { return };
    let (run, found) = service.sweep(&["--for", "25s"], |_| ());
    let shown = format!("{}\n{}", run.stdout, run.stderr);
    assert_eq!(verdicts(&found), ["undecided"; 2], "{shown}");
    assert_eq!(found["validity"]["holds"], false, "{shown}");
    assert_eq!(run.status.code(), Some(8), "{shown}");
    assert!(run.stdout.starts_with("No verdict: the load stopped"), "{shown}");
    assert!(run.stderr.contains("waiting for the load"), "{shown}");
    // It takes about what it took in the census, and not fifty times that, and no slice without a unit
    // counts.
    let counted = counted(&found);
    let times = counted.iter().filter(|slice| slice["phase"] == "census").map(|slice| {
        let number = |key: &str| slice[key].as_f64().unwrap();
        (number("end_ns") - number("start_ns")) / number("units")
    });
    let slowest = times.fold(0.0, f64::max);
    let takes = found["time_per_unit_ns"].as_f64().unwrap();
    assert!(takes < 5.0 * slowest, "{takes} {slowest}\n{shown}");
    assert!(counted.iter().all(|slice| slice["units"].as_f64() > Some(0.0)), "{shown}");
}

#[test]
fn a_sweep_whose_load_pauses_goes_on() {
    let Some(service) = loaded() else { return };
    let (run, found) = service.sweep(&["--for", "40s", "--max-slowdown", "30%"], |sweep| {
        sweep.wait_for_stderr("waiting for the load", PATIENCE).unwrap();
        fs::remove_file(&service.stop).unwrap();
        sweep.wait_for_stderr("the load is back", PATIENCE).unwrap();
    });
    let shown = format!("{}\n{}", run.stdout, run.stderr);
    assert_eq!(run.status.code(), Some(0), "{shown}");
    assert_eq!(found["validity"]["holds"], true, "{shown}");
    assert!(run.stdout.contains("note: the load stopped after "), "{shown}");
    assert!(found["load_changes"][0]["end_ns"].is_u64(), "{shown}");
    // Machines differ in how sure it is.
    assert!(!verdicts(&found).contains(&"does-not-matter"), "{shown}");
    assert!(counted(&found).iter().all(|slice| slice["units"].as_f64() > Some(0.0)), "{shown}");
}

/// A service that no longer answers requests is not one whose clients have gone.
#[test]
fn a_service_that_deadlocks_is_said_to_stand_still() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let Some(service) = planted("stuck") else { return };
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render", "--sockets"]);
    command.args(["--closed-loop", "--for", "40s", "--wait-load", "1s", "--json", json.to_str().unwrap()]);
    let sweep = tool::Running::start(&mut command).unwrap();
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    kill_process(Pid::from_raw(service.pid()).unwrap(), Signal::USR1).unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    let (found, shown) = (read(&json), format!("{}\n{}", run.stdout, run.stderr));
    assert_eq!(run.status.code(), Some(8), "{shown}");
    assert_eq!(verdicts(&found), ["undecided"], "{shown}");
    assert!(run.stdout.starts_with("No verdict: the service stood still after "), "{shown}");
    assert!(run.stdout.contains("no unit is done, and 1 request has no answer"), "{shown}");
    assert_eq!(found["load_changes"][0]["unanswered"], 1, "{shown}");
}

/// The most important function would seem not to matter if the "busy" answers that it causes counted as work.
#[test]
fn answers_that_say_busy_leave_no_verdict() {
    let Some(service) = planted("refusing") else { return };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let run = service.sweep(&[
        "-t",
        "*/planted.py:score",
        "-t",
        "*/planted.py:render",
        "--progress",
        "*/planted.py:unit",
        "--closed-loop",
        "--for",
        "30s",
        "--json",
        json.to_str().unwrap(),
    ]);
    let (found, shown) = (read(&json), format!("{}\n{}", run.stdout, run.stderr));
    assert_eq!(verdicts(&found), ["undecided"; 2], "{shown}");
    assert_eq!(run.status.code(), Some(8), "{shown}");
    assert!(run.stdout.starts_with("No verdict: units took less time with delays of "), "{shown}");
    assert_eq!(found["validity"]["holds"], false, "{shown}");
}

/// Failed requests are not work, however long they take.
#[test]
fn requests_that_fail_while_a_function_is_delayed_end_the_sweep() {
    let Some(service) = planted("failing") else { return };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let functions = ["-t", "*/planted.py:score", "-t", "*/planted.py:render"];
    let more = ["--sockets", "--closed-loop", "--for", "30s", "--json", json.to_str().unwrap()];
    let run = service.sweep(&[&functions[..], &more].concat());
    let (found, shown) = (read(&json), format!("{}\n{}", run.stdout, run.stderr));
    assert_eq!(verdicts(&found), ["undecided"; 2], "{shown}");
    assert_eq!(run.status.code(), Some(8), "{shown}");
    assert!(run.stdout.starts_with("No verdict: requests failed while "), "{shown}");
    assert!(run.stdout.contains(" answers were HTTP 5xx, 408 or 429"), "{shown}");
    assert_eq!(found["validity"]["holds"], false, "{shown}");
}
