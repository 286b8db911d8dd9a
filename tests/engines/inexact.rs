//! Delays that are longer than requested: the median stays exact, and the report says why the mean is not.
//!
//! The helper spins these delays like any other code of its process: other processes can take its processor.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use serde_json::Value;
use speed_bump_testing::{PythonBuild, Service, exact, priority, pythons, session::Ended, skip};
use speed_bump_tests::{
    calls::start,
    helper::{attach, one_by_one},
};

const DELAY_NS: u64 = 1_000_000;
const CALLS: u64 = 300;
/// The start of the message about a session whose delays were too long.
const TOLD: &str = "speed-bump-ebpf: warning: delays were ";

/// Takes the processor from all others for 5 ms of each 20. What it waits for is its own standard input.
const TAKES_TURNS: &str = "\
import os, select, sys, time
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except OSError as error:
    print(error, flush=True)
    sys.exit()
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0.015)[0]:
    until = time.monotonic() + 0.005
    while time.monotonic() < until:
        pass
";

/// Any one of the interpreters: what is tested here does not hang on the version.
fn on_one(case: impl Fn(&PythonBuild)) {
    let any: Vec<&PythonBuild> = pythons().iter().take(1).collect();
    one_by_one(&any, case);
}

/// A session of [`CALLS`] delayed calls.
fn session(service: &mut Service) -> Ended {
    let session = attach(service, "*calls.py:plain\n", &["--engine", "helper", "--delay", "1ms"]);
    service.ask(&format!("times({CALLS}, plain, 1)")).unwrap();
    session.stop().unwrap()
}

/// Checks that table, JSON and warning agree about the session, and returns the cause that they name.
fn cause(ended: &Ended) -> Option<String> {
    let (report, target) = (&ended.report, ended.target(0));
    let number = |value: &Value| value.as_u64().unwrap();
    let function = &target["functions"][0];
    assert_eq!(number(&target["delayed"]), CALLS, "{target}");
    exact::exact("the median", DELAY_NS, number(&target["median_ns"]));
    assert!(number(&target["interrupted"]) <= CALLS, "{target}");
    let is_over = number(&target["delivered_ns"]) * 10 >= number(&function["requested_ns"]) * 11;
    for inexact in [&report["inexact"], &target["inexact"], &function["inexact"]] {
        assert_eq!(inexact.is_null(), !is_over, "{report}");
    }
    let stderr = &ended.run.stderr;
    assert_eq!(
        (stderr.contains(TOLD), stderr.contains("! over the request")),
        (is_over, is_over),
        "{stderr}"
    );
    assert_eq!(report["inexact"], target["inexact"]);
    is_over.then(|| target["inexact"]["cause"].as_str().unwrap().to_owned())
}

/// Keeps a process on one processor, the first that we may use.
fn pin(pid: i32) {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(Pid::from_raw(pid), &one).unwrap();
}

/// A process that ends with this value.
struct Competitor(Child);

impl Competitor {
    fn start(python: &PythonBuild, folder: &Path) -> Result<Self, String> {
        let script = folder.join("takes_turns.py");
        fs::write(&script, TAKES_TURNS).unwrap();
        let mut command = python.command(&script);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut competitor = Self(child);
        pin(competitor.0.id().cast_signed());
        let mut said = String::new();
        let mut output = std::io::BufReader::new(competitor.0.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut said).unwrap();
        if said == "ready\n" { Ok(competitor) } else { Err(said.trim_end().to_owned()) }
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn threads_that_lose_their_processor_are_told_from_late_delays() {
    on_one(|python| {
        let folder = tempfile::tempdir().unwrap();
        let mut service = start(python, &[]);
        pin(service.pid());
        // More than half of the calls are to be exact, whatever else runs here.
        priority::prefer(service.pid()).unwrap();
        let competitor = match Competitor::start(python, folder.path()) {
            Ok(competitor) => competitor,
            Err(why) => return skip!("no real-time scheduling here: {why}"),
        };
        let ended = session(&mut service);
        drop(competitor);
        assert_eq!(cause(&ended).as_deref(), Some("preemption"), "{}", ended.report);
        assert!(ended.target(0)["interrupted"].as_u64() > Some(0), "{}", ended.report);
    });
}

/// A control group whose processes get a tenth of a processor, which goes with this value.
///
/// Its share among the others is the greatest possible: other processes must not take the processor from it
/// for so long that it never uses up its quota. Then the cause would rightly be preemption.
struct TenthGroup(PathBuf);

impl TenthGroup {
    fn make() -> Result<Self, String> {
        // Version 1, or version 2 where its root has the controller.
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
        let has_quotas = |root: &&Path| {
            let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
            root.join("cpu.shares").exists() || controllers.split_whitespace().any(|one| one == "cpu")
        };
        let root = roots.into_iter().find(has_quotas).ok_or("no cpu controller is mounted and enabled")?;
        let folder = root.join(format!("speed-bump-test-{}-tenth", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let group = Self(folder);
        let of_version_1 =
            [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "10000"), ("cpu.shares", "262144")];
        let is_version_1 = group.0.join(of_version_1[0].0).exists();
        let files = if is_version_1 {
            &of_version_1[..]
        } else {
            &[("cpu.max", "10000 100000"), ("cpu.weight", "10000")]
        };
        for (file, text) in files {
            fs::write(group.0.join(file), text).map_err(|error| format!("no quota for a group: {error}"))?;
        }
        Ok(group)
    }

    fn take(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for TenthGroup {
    fn drop(&mut self) {
        // Its processes have ended; the kernel may take a moment to see that.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_group_that_has_used_up_its_share_is_named() {
    on_one(|python| {
        let group = match TenthGroup::make() {
            Ok(group) => group,
            Err(why) => return skip!("{why}"),
        };
        let mut service = start(python, &[]);
        group.take(service.pid());
        priority::prefer(service.pid()).unwrap();
        let ended = session(&mut service);
        drop(service);
        assert_eq!(cause(&ended).as_deref(), Some("cpu-quota"), "{}", ended.report);
    });
}

#[test]
fn exact_delays_are_not_spoken_of() {
    /// A hypervisor may spoil some.
    const SESSIONS: usize = 10;
    /// No process takes its processor, not even the competitor.
    const ABOVE_ALL: &str = "\
import os
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    WHY = ''
except OSError as error:
    WHY = str(error)";
    on_one(|python| {
        let mut service = start(python, &[]);
        let text = serde_json::to_string(ABOVE_ALL).unwrap();
        let said = service.ask(&format!("exec({text}, globals()); say(why=WHY)")).unwrap();
        match said[0]["why"].as_str().unwrap() {
            "" => {}
            why => return skip!("no real-time scheduling here: {why}"),
        }
        let quiet = (0..SESSIONS).find(|_| cause(&session(&mut service)).is_none());
        assert!(quiet.is_some(), "no session of {SESSIONS} was exact on average");
    });
}

#[test]
fn requests_below_a_floor_are_told_from_interruptions() {
    // A trap takes longer than 100 ns.
    let (_fixture, mut service) = match speed_bump_testing::session::obstacle() {
        Some(why) => return skip!("{why}"),
        None => exact::start().unwrap(),
    };
    let flags = ["--engine", "bpf", "--delay", "100ns"];
    let session =
        speed_bump_testing::Attached::start(service.pid(), "native:*/program:worked\n", &flags).unwrap();
    service.ask("time worked 0 100 5").unwrap();
    let ended = session.stop().unwrap();
    let target = ended.target(0);
    assert_eq!(target["inexact"]["cause"], "floor", "{target}");
    let [floor, cold] = ["floor_ns", "cold_floor_ns"].map(|name| target[name].as_u64().unwrap());
    assert!(floor > 100 && cold >= floor, "{target}");
    assert!(target["median_ns"].as_u64() > Some(150), "{target}");
    assert!(ended.run.stderr.contains("100ns is below what a trap costs"), "{}", ended.run.stderr);
    assert!(ended.run.stderr.contains("after a sleep"), "{}", ended.run.stderr);
}
