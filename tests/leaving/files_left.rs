//! Files that a tool leaves if it is killed, or can write no more: the next tool removes all of them.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use speed_bump_testing::{Fixture, Service, places, pythons::pythons, session, skip};
use tempfile::TempDir;

const HOT: &str = "native:*/service:hot\n";

fn start() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    (fixture, service)
}

/// A session of a moment, which writes a report.
fn command(folder: &TempDir, outputs: &Path, service: &Service) -> Command {
    let flags = ["--times", "--duration", "50ms", "--quiet"];
    let mut command = session::command(folder.path(), service.pid(), HOT, &flags).unwrap();
    command.arg("--json").arg(outputs.join("report.json"));
    command
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_killed_tools_left_is_gone_after_the_next() {
    if let Some(why) = session::obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start();
    let (folder, outputs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut sockets = Vec::new();
    for turn in 0..30 {
        let mut killed = command(&folder, outputs.path(), &service).spawn().unwrap();
        sockets.push(PathBuf::from(format!("/run/speed-bump-ebpf/sessions/{}.sock", killed.id())));
        thread::sleep(Duration::from_millis(20 * turn));
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    let status = command(&folder, outputs.path(), &service).status().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(names(outputs.path()), ["report.json"]);
    let left: Vec<_> = sockets.iter().filter(|socket| socket.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    service.ask("call hot 10").unwrap();
    assert!(service.quit().unwrap().success());
}

/// Runs a command that may write no bytes to files.
fn run_without_room(command: &Command) -> Output {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    limited.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_report_beyond_the_limit_of_file_sizes_is_an_error() {
    if let Some(why) = session::obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start();
    let (folder, outputs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ended = run_without_room(&command(&folder, outputs.path(), &service));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(4), "{} {said}", ended.status);
    assert!(said.contains("report.json") && said.contains("File too large"), "{said}");
    assert!(names(outputs.path()).is_empty(), "{:?}", names(outputs.path()));
    service.ask("call hot 10").unwrap();
    assert!(service.quit().unwrap().success());
}

#[test]
fn an_attach_beyond_the_limit_of_file_sizes_is_an_error() {
    if let Some(why) = session::obstacle() {
        return skip!("{why}");
    }
    // Where calls can be seen without the helper, they are.
    let Some(python) = pythons().iter().find(|python| !python.usdt_fires()) else {
        return skip!("no Python of which only the helper sees the calls");
    };
    let mut service =
        Service::start(python.command(&places::fixtures().join("service.py")).arg("0")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--duration", "50ms"];
    let command = session::command(folder.path(), service.pid(), "py:*/service.py:hot\n", &flags).unwrap();
    let ended = run_without_room(&command);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(4), "{} {said}", ended.status);
    assert!(said.contains("File too large"), "{said}");
    service.ask("call hot 10").unwrap();
    assert!(service.quit().unwrap().success());
}
