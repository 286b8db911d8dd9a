//! What a session leaves: the JSON report, the table, and the streams that they go to.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::Command,
};

use serde_json::{Value, json};
use speed_bump_testing::{
    Attached, Fixture, Service,
    session::{command, obstacle},
    skip, text,
    tool::{Run, Running},
    wait::{PATIENCE, wait_until},
};

const TARGETS: &str =
    "native:*/service:hot delay=2us id=mine\nusdt:*:service:tick\nnative:*/service:no_such\n";

fn start() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    (fixture, service)
}

/// A session of a moment, from its start to its end.
fn short(fixture: &Fixture, service: &Service, flags: &[&str]) -> Run {
    let flags = [&["--duration", "10ms"], flags].concat();
    let mut command = command(fixture.folder(), service.pid(), TARGETS, &flags).unwrap();
    Running::start(&mut command).unwrap().finish(PATIENCE).unwrap()
}

fn fields(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_report_has_the_fields_of_its_schema() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start();
    let session = Attached::start(service.pid(), TARGETS, &["--frequency", "2"]).unwrap();
    service.ask("call hot 10").unwrap();
    service.ask("call probed 4").unwrap();
    let ended = session.stop().unwrap();
    let report = &ended.report;
    let expected = ["schema", "pid", "pids", "processes", "engine", "duration_ns", "targets", "warnings"];
    assert_eq!(fields(report), expected.into());
    assert_eq!(report["schema"], "speed-bump/session/1");
    assert_eq!((&report["pid"], &report["pids"]), (&json!(service.pid()), &json!([service.pid()])));
    assert_eq!(
        (&report["processes"], &report["engine"], &report["warnings"]),
        (&json!(1), &json!("bpf"), &json!([]))
    );
    assert!(report["duration_ns"].as_u64().unwrap() > 0);
    let expected = [
        "id",
        "kind",
        "pattern",
        "engine",
        "entry",
        "floor_ns",
        "requested_ns",
        "frequency",
        "calls",
        "delayed",
        "missed",
        "delivered_ns",
        "functions",
    ];
    for target in report["targets"].as_array().unwrap() {
        assert_eq!(fields(target), expected.into());
        assert_eq!(target["engine"], "bpf");
    }
    let values = |position: usize, names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| ended.target(position)[name].clone()).collect()
    };
    let names = ["id", "kind", "entry", "requested_ns", "frequency", "calls", "delayed"];
    assert_eq!(json!(values(0, &names)), json!(["mine", "native", "symbol", 2000, 2, 10, 5]));
    assert_eq!(json!(values(1, &names)), json!(["usdt:*:service:tick", "usdt", "usdt", 1000, 2, 4, 2]));
    assert_eq!(json!(values(2, &names)), json!(["native:*/service:no_such", "native", null, 1000, 2, 0, 0]));
    assert_eq!(ended.target(2)["functions"], json!([]));
    let hot = &ended.target(0)["functions"][0];
    let expected = ["name", "file", "line", "calls", "delayed", "missed", "requested_ns", "delivered_ns"];
    assert_eq!(fields(hot), expected.into());
    assert_eq!(hot["file"], json!(fixture.program()));
    assert_eq!((&hot["line"], &hot["requested_ns"]), (&json!(null), &json!(10_000)));
    assert_eq!(hot["delivered_ns"], ended.target(0)["delivered_ns"]);
}

#[test]
fn standard_output_has_the_report_and_nothing_else() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let run = short(&fixture, &service, &["--json", "-"]);
    assert!(run.status.success(), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["schema"], "speed-bump/session/1");
    assert!(run.stderr.contains("delivered"), "the table is on standard error: {}", run.stderr);
    assert_eq!(short(&fixture, &service, &[]).stdout, "");
}

#[test]
fn the_file_is_replaced_whole() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let folder = tempfile::tempdir().unwrap();
    let (report, elsewhere) = (folder.path().join("report.json"), folder.path().join("elsewhere"));
    let is_report = |file: &Path| {
        let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        report["schema"] == "speed-bump/session/1"
    };
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let write = || {
        let run = short(&fixture, &service, &["--json", report.to_str().unwrap()]);
        assert!(run.status.success(), "{}", run.stderr);
        assert!(is_report(&report));
    };
    write();
    let first = report.metadata().unwrap().ino();
    write();
    assert_ne!(report.metadata().unwrap().ino(), first, "written over and not replaced");
    assert_eq!(names(), ["report.json".to_owned()].into());
    // A link is replaced and not followed.
    std::fs::write(&elsewhere, "mine").unwrap();
    std::fs::remove_file(&report).unwrap();
    symlink(&elsewhere, &report).unwrap();
    write();
    assert!(report.symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "mine");
    assert_eq!(names(), ["elsewhere".to_owned(), "report.json".to_owned()].into());
}

#[test]
fn quiet_says_warnings_alone() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let run = short(&fixture, &service, &["--quiet"]);
    assert!(run.status.success());
    assert_eq!(run.stdout, "");
    let is_warning = |line: &str| line.starts_with("speed-bump-ebpf: warning: ") || line.starts_with("  ");
    assert!(run.stderr.contains("no_such") && run.stderr.lines().all(is_warning), "{}", run.stderr);

    let targets = "native:*/service:hot delay=50us\n";
    let mut command = command(fixture.folder(), service.pid(), targets, &["-q"]).unwrap();
    let mut running = Running::start(&mut command).unwrap();
    let probed = || Ok(!text::differences(service.pid(), fixture.program())?.is_empty());
    wait_until("the probe is there", probed).unwrap();
    running.signal(rustix::process::Signal::INT).unwrap();
    let run = running.finish(PATIENCE).unwrap();
    assert!(run.status.success());
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
}

#[test]
fn without_a_terminal_the_table_comes_once_and_plainly() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start();
    let targets = "native:*/service:hot delay=50us id=mine\n";
    let mut command = command(fixture.folder(), service.pid(), targets, &[]).unwrap();
    let mut running = Running::start(&mut command).unwrap();
    let probed = || Ok(!text::differences(service.pid(), fixture.program())?.is_empty());
    wait_until("the probe is there", probed).unwrap();
    service.ask("call hot 10").unwrap();
    // Longer than the live table of a terminal takes to be drawn twice.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    running.signal(rustix::process::Signal::INT).unwrap();
    let run = running.finish(PATIENCE).unwrap();
    let [header, attached, heading, target, function, detached] =
        run.stderr.lines().map(str::trim_start).collect::<Vec<_>>()[..]
    else {
        return assert_eq!(run.stderr, "six lines");
    };
    assert!(header.starts_with(&format!("process {} (service): 1 function at", service.pid())), "{header}");
    assert!(
        attached.starts_with("attached; it took ") && detached.starts_with("detached after "),
        "{attached}"
    );
    assert!(heading.starts_with("calls  delayed  delivered"), "{heading}");
    assert!(target.starts_with("mine [native]") && function.starts_with("hot (service)"), "{target}");
    assert!(!run.stderr.contains('\x1b') && !run.stderr.contains('\r'), "{:?}", run.stderr);
    let row = run.stderr.lines().find(|line| line.starts_with("mine [native]")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(&cells[2..4], ["10", "10"], "{row}");
}
