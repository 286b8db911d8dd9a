//! What can be seen of the helper from outside and from inside a process.

use std::fs;

use serde_json::Value;
use speed_bump_testing::{Attached, PythonBuild, Service, pythons, session::obstacle, side_by_side, skip};

/// What the helper's thread is called.
const THREAD: &str = "speed-bump";

/// `getppid` of the C library: of `libc.so.6`, or before glibc 2.34 of what that is a link to, such as
/// `libc-2.31.so`.
pub const GETPPID: &str = "native:*/libc[-.]*:getppid\n";

/// Runs a case on every interpreter that the helper knows, some at a time.
pub fn on_each(case: impl Fn(&PythonBuild) + Sync) {
    let pythons: Vec<&PythonBuild> = pythons().iter().collect();
    if may_run(&pythons) {
        side_by_side::on_each(&pythons, |python| case(python));
    }
}

/// Runs a case on each of these interpreters, one after the other: what is timed would have others beside it.
pub fn one_by_one(pythons: &[&PythonBuild], case: impl Fn(&PythonBuild)) {
    if may_run(pythons) {
        pythons.iter().for_each(|python| case(python));
    }
}

fn may_run(pythons: &[&PythonBuild]) -> bool {
    match obstacle() {
        Some(why) => skip!("{why}"),
        None if pythons.is_empty() => skip!("this machine has no Python 3.8 or newer"),
        None => return true,
    }
    false
}

/// Attaches through the helper and nothing else.
pub fn attach(service: &Service, targets: &str, flags: &[&str]) -> Attached {
    let flags: Vec<&str> = ["--entry", "helper", "-vv"].into_iter().chain(flags.iter().copied()).collect();
    Attached::start(service.pid(), targets, &flags).unwrap()
}

/// Threads of the helper in a process.
pub fn threads(pid: i32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == THREAD).count()
}

/// How many images of the helper a process maps.
pub fn images(pid: i32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().filter(|line| line.contains(" r-xp ") && line.contains("/memfd:speed-bump-helper")).count()
}

/// The tools that `sys.monitoring` knows in the process; empty before 3.12.
pub fn tools(python: &PythonBuild, service: &mut Service) -> Vec<Value> {
    if python.minor() < (3, 12) {
        return Vec::new();
    }
    let said = service.ask("say(tools=[sys.monitoring.get_tool(i) for i in range(6)])").unwrap();
    said[0]["tools"].as_array().unwrap().iter().filter(|tool| !tool.is_null()).cloned().collect()
}
