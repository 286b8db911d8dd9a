//! What can be seen of the helper from outside and from inside a process.

use std::{fs, thread, time::Duration};

use serde_json::Value;
use speed_bump_testing::{Attached, PythonBuild, Service, pythons, session::obstacle, side_by_side, skip};

use crate::calls::start;

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

/// A process of each interpreter begins a spin of 10 s, all of them at the same time, and then the sessions
/// end or are killed: the spins end with them.
pub fn spins_end_with_their_sessions(engine: &str) {
    const DELAY: &str = "10s";
    /// A spin takes that much of its thread's own time, unless it ends with its session.
    const WHOLE_SPIN_S: f64 = 9.0;
    /// So long after a process was asked to, its spin has begun, though all of them spin.
    const SPINS_BEGIN: Duration = Duration::from_millis(500);
    const CALL: &str = "import time; begun = time.thread_time(); times(1, plain, 1); \
                        say(own_s=time.thread_time() - begun)";
    let pythons: Vec<&PythonBuild> = pythons().iter().collect();
    if !may_run(&pythons) {
        return;
    }
    let mut services: Vec<_> = pythons.iter().map(|python| start(python, &[])).collect();
    for killed in [false, true] {
        let flags = ["--engine", engine, "--delay", DELAY];
        let attached = |service| attach(service, "*calls.py:plain\n", &flags);
        let sessions: Vec<_> = services.iter().map(attached).collect();
        let answers: Vec<_> = thread::scope(|scope| {
            let ask = |service: &mut Service| service.ask(CALL);
            let asked: Vec<_> =
                services.iter_mut().map(|service| scope.spawn(move || ask(service))).collect();
            thread::sleep(SPINS_BEGIN);
            for (session, python) in sessions.into_iter().zip(&pythons) {
                scope.spawn(move || {
                    if killed {
                        session.kill().unwrap();
                    } else {
                        assert_eq!(session.stop().unwrap().counts(0).0, 1, "{python}: no spin had begun");
                    }
                });
            }
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        for ((answer, python), service) in answers.into_iter().zip(&pythons).zip(&mut services) {
            let answer = answer.unwrap_or_else(|error| panic!("{python}: killed {killed}: {error}"));
            let own_s = answer[0]["own_s"].as_f64().unwrap();
            assert!(own_s < WHOLE_SPIN_S, "{python}: killed {killed}: it spun for {own_s} s");
            service.ask("times(3, plain, 1)").unwrap();
        }
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
