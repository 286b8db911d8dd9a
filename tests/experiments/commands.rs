//! The user's commands that run during a sweep: they end with it, however it ends, and none hides another.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use speed_bump_testing::{
    tool::{self, Running},
    wait::{PATIENCE, wait_until},
};

use crate::planted::{UNIT, planted_tiny, planted_with};

/// Has a command leave the numbers of its shell and of what that has started.
pub(crate) fn tells_of_itself(file: &Path) -> String {
    format!("sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}", file.display())
}

/// The processes that a command has reported.
pub(crate) fn processes(file: &Path) -> Vec<String> {
    wait_until("the command runs", || Ok(file.exists())).unwrap();
    fs::read_to_string(file).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// Whether a process is there, and not just its number.
pub(crate) fn runs(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A sweep of what is planted there.
fn sweep(pid: i32, flags: &[&str]) -> Running {
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &pid.to_string(), "-t", "*/planted.py:render", "--for", "60s"]);
    Running::start(command.args(flags)).unwrap()
}

#[test]
fn a_sweep_that_is_killed_leaves_no_command_behind() {
    let Some(service) = planted_tiny("shadow") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("processes");
    let itself = tells_of_itself(&file);
    let metric = format!("command:{itself}; while sleep 0.05; do echo 1; done");
    let (bench, guard) = (format!("{itself}; wait"), format!("command:{itself}; wait"));
    let load = format!("{itself}; wait");
    for flags in [
        &["--metric", &metric][..],
        &["--bench", &bench],
        &["--guard", &guard, UNIT[0], UNIT[1]],
        &["--load", &load, UNIT[0], UNIT[1]],
    ] {
        let mut sweep = sweep(service.pid(), flags);
        let left = processes(&file);
        assert!(left.len() == 2, "{left:?}");
        // Its output is not waited for: what is left behind would hold that open.
        sweep.signal(Signal::KILL).unwrap();
        drop(sweep);
        let ended = wait_until("its commands have ended", || Ok(!left.iter().any(|pid| runs(pid))));
        for pid in left.iter().filter(|pid| runs(pid)) {
            let _ = Command::new("sh").args(["-c", &format!("kill -9 {pid}")]).status();
        }
        ended.unwrap_or_else(|error| panic!("{flags:?}: {error:#}"));
        fs::remove_file(&file).unwrap();
    }
}

/// In whichever run it hangs.
#[test]
fn a_benchmark_that_hangs_ends_the_sweep_when_its_time_is_up() {
    let Some(service) = planted_tiny("shadow") else { return };
    let folder = tempfile::tempdir().unwrap();
    for (hangs, code, words) in [
        ("sleep 1000", 2, "a run had not ended when the time was up that --for gives"),
        ("sleep 0.2; echo x >> runs; test $(wc -l < runs) -lt 5 || kill -STOP $$", 8, "it was ended"),
    ] {
        let mut command = Command::new(tool::path().unwrap());
        command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render"]);
        command.args(["--for", "5s", "--bench", hangs]).current_dir(folder.path());
        let run = Running::start(&mut command).unwrap().finish(PATIENCE).unwrap();
        assert_eq!(run.status.code(), Some(code), "{}\n{}", run.stderr, run.stdout);
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
}

#[test]
fn a_metrics_command_that_is_stopped_leaves_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let (log, bad) = (folder.path().join("units"), folder.path().join("bad"));
    let Some(service) = planted_with("logged", &[log.to_str().unwrap()]) else { return };
    let count = format!(
        "command:while sleep 0.005; do stat -c %s {}; test ! -e {} || kill -STOP $$; done",
        log.display(),
        bad.display()
    );
    let sweep = sweep(service.pid(), &["--metric", &count, "--slice", "400ms"]);
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    fs::write(&bad, "").unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(8), "{}\n{}", run.stderr, run.stdout);
    assert!(run.stderr.contains("has printed nothing for 5s"), "{}", run.stderr);
}

#[test]
fn a_guard_that_hangs_hides_no_other() {
    let Some(service) = planted_tiny("shadow") else { return };
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad");
    let hangs = format!("command:test ! -e {} || sleep 1000", bad.display());
    let tells = format!("command:test ! -e {}", bad.display());
    let sweep = sweep(service.pid(), &["--guard", &hangs, "--guard", &tells, UNIT[0], UNIT[1]]);
    sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    fs::write(&bad, "").unwrap();
    let run = sweep.finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(6), "{}", run.stderr);
    let why = format!("a guard ended the experiment: `test ! -e {}` failed", bad.display());
    assert!(run.stderr.contains(&why), "{}", run.stderr);
}
