//! The output of a session: the JSON report, the table, and the streams that they go to.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
    process::Command,
};

use serde_json::{Value, json};
use speed_bump_testing::{
    Attached, Fixture, Service,
    session::{command, obstacle},
    skip, text,
    tool::{self, Run, Running},
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
    let expected =
        ["schema", "pid", "pids", "processes", "engine", "duration_ns", "targets", "inexact", "warnings"];
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
        "cold_floor_ns",
        "requested_ns",
        "frequency",
        "calls",
        "delayed",
        "missed",
        "delivered_ns",
        "median_ns",
        "interrupted",
        "inexact",
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
    let counted = ["calls", "delayed", "missed", "requested_ns", "delivered_ns"];
    let known = ["name", "file", "line", "median_ns", "interrupted", "inexact"];
    let expected: Vec<&str> = counted.into_iter().chain(known).collect();
    assert_eq!(fields(hot), expected.into_iter().collect());
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
        let report: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        report["schema"] == "speed-bump/session/1"
    };
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
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
    fs::write(&elsewhere, "mine").unwrap();
    fs::remove_file(&report).unwrap();
    symlink(&elsewhere, &report).unwrap();
    write();
    assert!(report.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "mine");
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
    // With a delay, an interrupted one would add lines of its own.
    let targets = "native:*/service:hot delay=0 id=mine\n";
    let mut command = command(fixture.folder(), service.pid(), targets, &[]).unwrap();
    let mut running = Running::start(&mut command).unwrap();
    let probed = || Ok(!text::differences(service.pid(), fixture.program())?.is_empty());
    wait_until("the probe is there", probed).unwrap();
    service.ask("call hot 10").unwrap();
    // Longer than drawing the live table twice takes.
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
        attached.starts_with("attached; 1 function; it took ") && detached.starts_with("detached after "),
        "{attached}"
    );
    assert!(heading.starts_with("calls  delayed  delivered"), "{heading}");
    assert!(target.starts_with("mine [native]") && function.starts_with("hot (service)"), "{target}");
    assert!(!run.stderr.contains('\x1b') && !run.stderr.contains('\r'), "{:?}", run.stderr);
    let row = run.stderr.lines().find(|line| line.starts_with("mine [native]")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(&cells[2..4], ["10", "0"], "{row}");
}

#[test]
fn the_version_names_commit_and_object() {
    let run = tool::run(&["--version"], PATIENCE).unwrap();
    let said = run.stdout.trim();
    let inner = said.strip_prefix("speed-bump-ebpf ").and_then(|said| said.split_once(" (commit "));
    let (commit, object) = inner.and_then(|(_, rest)| rest.split_once(", BPF object ")).unwrap();
    assert!(commit == "unknown" || commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
    let checksum = object.strip_suffix(')').and_then(|object| object.split_once(' ')).unwrap().1;
    assert!(u32::from_str_radix(checksum, 16).is_ok_and(|checksum| checksum != 0), "{said}");
    assert!(tool::run(&["-V"], PATIENCE).unwrap().stdout.lines().all(|line| !line.contains("commit")));
}

#[test]
fn scripts_hear_when_it_is_ready_and_get_lines_while_it_goes_on() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start();
    let lines = fixture.folder().join("lines.json");
    fs::write(&lines, "{\"before\":1}\n").unwrap();
    let file = fixture.folder().join("targets.txt");
    fs::write(&file, "native:*/service:hot\n").unwrap();
    // A shell gives it the descriptor: what it reads there comes when the session is ready.
    let script = "exec 3>\"$1\"; shift; exec \"$@\" --ready-fd 3";
    let ready = fixture.folder().join("ready");
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(&ready).arg(tool::path().unwrap());
    command.args(["--pid", &service.pid().to_string(), "--delay", "0", "--targets"]).arg(&file);
    let mut running = Running::start(command.arg("--json-lines").arg(&lines)).unwrap();
    wait_until("it is ready", || Ok(fs::read_to_string(&ready).is_ok_and(|text| text == "ready\n"))).unwrap();
    service.ask("call hot 10").unwrap();
    let text = || fs::read_to_string(&lines).unwrap();
    wait_until("two lines were added", || Ok(text().lines().count() >= 3)).unwrap();
    running.signal(rustix::process::Signal::INT).unwrap();
    assert!(running.finish(PATIENCE).unwrap().status.success());
    let text = text();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(text.starts_with("{\"before\":1}\n"), "lines are added");
    assert_eq!((&last["schema"], &last["targets"][0]["calls"]), (&"speed-bump/session/1".into(), &10.into()));

    let run = tool::run(&["--pid", "1", "-t", "native:*:f", "--ready-fd", "77"], PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(run.stderr.contains("--ready-fd 77: no such descriptor"), "{}", run.stderr);
}

#[test]
fn a_list_can_be_read_by_programs() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, service) = start();
    let pid = service.pid().to_string();
    let flags =
        ["list", "--json", "--pid", &pid, "-t", "native:*/service:hot delay=2us", "-t", "native:*:no_such"];
    let run = tool::run(&flags, PATIENCE).unwrap();
    let list: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(list["schema"], "speed-bump/list/1");
    let target = &list["processes"][0]["targets"][0];
    assert_eq!((&target["delay_ns"], &target["engine"]), (&2_000.into(), &"bpf".into()));
    let function = &target["functions"][0];
    assert_eq!((&function["name"], &function["entry"]), (&"hot".into(), &"symbol".into()));
    let site = &function["sites"][0];
    assert!(site["floor_ns"].as_u64() > Some(0) && site["offset"].as_u64() > Some(0), "{site}");
    assert_eq!(list["notices"][0]["notice"], "selects-nothing");
    assert_eq!(list["notices"][0]["line"], 2);
}

#[test]
fn functions_that_were_not_called_are_in_the_table() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let targets = "native:*/service:cold\n";
    let mut command = command(fixture.folder(), service.pid(), targets, &["--duration", "100ms"]).unwrap();
    let run = Running::start(&mut command).unwrap().finish(PATIENCE).unwrap();
    let row = run.stderr.lines().find(|line| line.trim_start().starts_with("cold (service)"));
    assert!(row.is_some_and(|row| row.split_whitespace().nth(2) == Some("0")), "{}", run.stderr);
}

#[test]
fn a_target_that_selects_nothing_says_what_the_files_have_to_do_with_it() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    // As a JIT compiler does it.
    let source = "#include <stdio.h>\n#include <sys/mman.h>\n\
        int main(void) {\n\
        void *code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
        puts(code == MAP_FAILED ? \"\" : \"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout);\n\
        return getchar() == 0; }\n";
    let fixture = Fixture::compile_text(source, &["-O1"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let pid = service.pid().to_string();
    let said = |target: &str| {
        let run = tool::run(&["list", "--pid", &pid, "--target", target], PATIENCE).unwrap();
        assert!(run.status.success(), "{}", run.stderr);
        run.stderr
    };
    let no_file = said("native:*/no_such.so.7:f");
    assert!(no_file.contains("it maps no file that matches `*/no_such.so.7`"), "{no_file}");
    let compiled = said("native:*/program:compiled_by_itself");
    assert!(compiled.contains("code that it has compiled itself"), "{compiled}");
    assert!(!compiled.contains("it maps no file"), "{compiled}");
    let plain = start();
    let pid = plain.1.pid().to_string();
    let run = tool::run(&["list", "--pid", &pid, "--target", "native:*/service:hott"], PATIENCE).unwrap();
    assert!(
        run.stderr.contains("similar names are ") && !run.stderr.contains("compiled itself"),
        "{}",
        run.stderr
    );
}
