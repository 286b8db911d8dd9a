//! Output to a full device is an error with a message, for every command and form. A reader that has gone
//! away is not an error.

#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use speed_bump_experiment::{
    record::Experiment,
    simulated::{Function, Noise, sweep},
};
use speed_bump_testing::{Attached, Fixture, Service, session::obstacle, skip, tool};

const HOT: &str = "native:*/service:hot";

/// How a command ended with this standard output, and its standard error.
fn ended(arguments: &[&str], output: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = Command::new(tool::path().unwrap());
    let child = command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped()).spawn();
    let ended = child.unwrap().wait_with_output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// The command fails and names the cause if its output is a full device, and succeeds if the reader has gone.
#[track_caller]
fn tells_of_a_full_device(arguments: &[&str]) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (code, said) = ended(arguments, full);
    assert_eq!(code, Some(4), "{arguments:?}: {said}");
    let words = ["speed-bump-ebpf: error: ", "standard output", "No space left on device"];
    assert!(words.iter().all(|words| said.contains(words)), "{arguments:?}: {said}");
}

/// The command ends as usual if the reader of its output has gone.
#[track_caller]
fn leaves_who_stops_reading_in_peace(arguments: &[&str]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (code, said) = ended(arguments, writer);
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
    assert!(!said.contains("error") && !said.contains("pipe"), "{arguments:?}: {said}");
}

/// A sweep's record and one of a session, as files.
fn record(folder: &Path) -> String {
    let function = ("render".to_owned(), Function { calls: 3.0, sensitivity: 1.0, slack: 0.0 }, 3e5);
    let experiment = Experiment::new(sweep(1e6, &[function], Noise::White(0.01), Duration::from_secs(60), 5));
    let path = folder.join("sweep.json");
    fs::write(&path, serde_json::to_string(&experiment).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_and_what_is_generated() {
    for arguments in
        [&["--help"][..], &["-h"], &["--version"], &["sweep", "--help"], &["completions", "bash"], &["man"]]
    {
        tells_of_a_full_device(arguments);
        leaves_who_stops_reading_in_peace(arguments);
    }
}

#[test]
fn reports_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(folder.path());
    for form in
        [&[][..], &["--markdown"], &["--csv"], &["--json"], &["--html", "-"], &["--trace-events", "-"]]
    {
        tells_of_a_full_device(&[&["report", &file], form].concat());
    }
    for form in [&[][..], &["--markdown"], &["--csv"], &["--json"]] {
        leaves_who_stops_reading_in_peace(&[&["report", &file], form].concat());
    }
    for form in [&[][..], &["--markdown"], &["--json"]] {
        tells_of_a_full_device(&[&["report", &file, &file], form].concat());
    }
}

#[test]
fn lists_checks_and_sessions() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let pid = &service.pid().to_string();
    let list = ["list", "--pid", pid, "-t", HOT];
    for arguments in [&list[..], &[&list[..], &["--json"]].concat(), &["sessions", "--json"]] {
        tells_of_a_full_device(arguments);
        leaves_who_stops_reading_in_peace(arguments);
    }
    for arguments in [&["doctor", "--pid", pid][..], &["doctor", "--pid", pid, "--json"]] {
        tells_of_a_full_device(arguments);
    }
    let session = Attached::start(service.pid(), &format!("{HOT}\n"), &[]).unwrap();
    tells_of_a_full_device(&["sessions"]);
    // Other tests have sessions, too.
    tells_of_a_full_device(&["set", "--session", &session.pid().to_string(), HOT, "delay=2us"]);
}

#[test]
fn what_a_session_writes_as_it_goes_and_at_its_end() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let mut service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let pid = &service.pid().to_string();
    // Lines are written each second, and at the end.
    let session = ["--pid", pid, "-t", HOT, "--duration", "1500ms"];
    for output in [&["--json", "-"][..], &["--json-lines", "-"]] {
        tells_of_a_full_device(&[&session[..], output].concat());
    }
    let file = fixture.folder().join("session.json");
    let file = file.to_str().unwrap();
    let attached = Attached::start(service.pid(), &format!("{HOT}\n"), &["--times"]).unwrap();
    service.ask("call hot 10").unwrap();
    fs::write(file, attached.stop().unwrap().report.to_string()).unwrap();
    tells_of_a_full_device(&["report", file]);
    tells_of_a_full_device(&["report", file, "--pstats", "-"]);
    leaves_who_stops_reading_in_peace(&["report", file]);
}

/// The table of a session goes to standard error, so only the exit code can report a failure.
#[test]
fn a_table_that_cannot_be_written_fails_the_session() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let ended = |flags: &[&str]| {
        let mut command = Command::new(tool::path().unwrap());
        // So long that there is nothing to warn of.
        command.args([
            "--pid",
            &service.pid().to_string(),
            "-t",
            HOT,
            "--delay",
            "1ms",
            "--duration",
            "10ms",
        ]);
        let full = File::options().write(true).open("/dev/full").unwrap();
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full).status().unwrap().code()
    };
    assert_eq!(ended(&[]), Some(4));
    assert_eq!(ended(&["--quiet"]), Some(0), "nothing was to be said");
}

#[test]
fn answers_of_the_agent() {
    tells_of_a_full_device(&["agent"]);
    leaves_who_stops_reading_in_peace(&["agent"]);
}
