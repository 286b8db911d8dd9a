//! Servers whose named process does no work itself: it forks workers, or is a shell that started them. What
//! is listed, refused and warned of is over all processes that a session covers.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, process::Command};

use speed_bump_testing::{
    Attached, PythonBuild, Service, pythons, pythons::Form, session::obstacle, skip, tool, wait::PATIENCE,
};
use tempfile::TempDir;

/// The parent knows nothing of what its worker imports. Both end with their input.
const MASTER: &str = "\
import os, select, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if os.fork() == 0:
    import work
    print('{\"event\":\"ready\"}', flush=True)
    while not select.select([0], [], [], 0.001)[0]: work.handle()
    os._exit(0)
os.wait()
";
const WORK: &str = "def handle(): pass\n";
const TARGET: &str = "*/work.py:handle";

/// A Python that executes as itself.
fn python() -> Option<&'static PythonBuild> {
    pythons().iter().find(|python| python.form != Form::Loader)
}

fn scripts() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("master.py"), MASTER).unwrap();
    fs::write(folder.path().join("work.py"), WORK).unwrap();
    folder
}

/// The server as it is, or behind a shell that stays.
fn start(folder: &Path, behind_shell: bool) -> Option<Service> {
    let python = python()?.command(&folder.join("master.py"));
    if !behind_shell {
        let mut python = python;
        return Some(Service::start(&mut python).unwrap());
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\"; true", "sh"]).arg(python.get_program()).args(python.get_args());
    shell.envs(python.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Service::start(&mut shell).unwrap())
}

fn is_selected(behind_shell: bool) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let folder = scripts();
    let Some(service) = start(folder.path(), behind_shell) else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let pid = service.pid().to_string();
    for flags in [vec!["list"], vec!["list", "--strict"]] {
        let flags = [flags.as_slice(), &["--pid", &pid, "-t", TARGET]].concat();
        let run = tool::run(&flags, PATIENCE).unwrap();
        assert!(run.status.success(), "{}", run.stderr);
        assert!(run.stdout.contains("selects 1 function in process"), "{}\n{}", run.stdout, run.stderr);
        assert!(!run.stderr.contains("selects nothing"), "{}", run.stderr);
    }

    for flags in [vec!["--delay", "0"], vec!["--delay", "0", "--strict"]] {
        let session = Attached::start(service.pid(), &format!("{TARGET}\n"), &flags).unwrap();
        let set = ["set", "--session", &session.pid().to_string(), TARGET, "delay=10us"].map(str::to_owned);
        let changed = tool::run(&set, PATIENCE).unwrap();
        assert!(changed.stdout.contains("1 function"), "it is known from the attach on: {}", changed.stderr);
        // A call comes each millisecond or so.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let ended = session.stop().unwrap();
        assert!(ended.counts(0).1 > 0, "{}", ended.run.stderr);
        let warnings = ended.report["warnings"].as_array().unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    // A target that selects nothing in any process is still reported, and refused on request.
    let flags = ["--pid", &pid, "--strict", "--duration", "1s", "-t", "*/work.py:handel"];
    let run = tool::run(&flags, PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("selects nothing"), "{}", run.stderr);
}

#[test]
fn workers_of_a_server_that_forks_are_listed_and_looked_at() {
    is_selected(false);
}

#[test]
fn a_shell_that_started_the_server_stands_for_it() {
    is_selected(true);
}

#[test]
fn another_session_with_a_worker_is_told_of() {
    const NATIVE: &str = "native:*/libc[-.]*:getppid";
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let folder = scripts();
    let Some(service) = start(folder.path(), false) else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let (master, flags) = (service.pid().to_string(), ["--delay", "0"]);
    let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap();
    let worker: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    let other = Attached::start(worker, &format!("{NATIVE}\n"), &flags).unwrap();
    let told = format!("session {}", other.pid());
    for (more, is_told) in [(&[][..], true), (&["--no-children"], false)] {
        let flags = [&["--pid", &master, "--duration", "100ms", "--delay", "0", "-t", NATIVE][..], more];
        let run = tool::run(&flags.concat(), PATIENCE).unwrap();
        assert_eq!(run.stderr.contains(&told), is_told, "{more:?}: {}", run.stderr);
    }
    other.stop().unwrap();
}
