//! Targets of another user that claim much, write much, and cut the files that they run: the loader keeps to
//! its bounds, ends on time, and says what it left out.

#![allow(clippy::unwrap_used, clippy::panic)]

mod library;
pub(crate) mod tool;

use std::{
    mem::offset_of,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use speed_bump_abi::control_block::ControlBlock;
use speed_bump_testing::{
    Fixture, PythonBuild, Service, everybody, session::obstacle, side_by_side, skip, wait::wait_until,
};
use tool::Tool;

/// A user that owns nothing.
const NOBODY: u32 = 65_534;
/// The most memory of the loader in these tests, in MiB: three times what it takes if no target is hostile.
const BOUND_MIB: i64 = 128;

fn folder_of(fixture: &Path) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile/hostile_memory").join(fixture)
}

/// Compiles a fixture into a folder that belongs to nobody.
fn compile(source: &str, flags: &[&str]) -> Fixture {
    let fixture = Fixture::compile(&folder_of(Path::new(source)), flags).unwrap();
    std::os::unix::fs::chown(fixture.folder(), Some(NOBODY), Some(NOBODY)).unwrap();
    fixture
}

fn start(command: &mut Command) -> Service {
    Service::start(command.uid(NOBODY).gid(NOBODY)).unwrap()
}

/// A process that fills its control block with so many huge names.
fn filling(python: &PythonBuild, script: &Path, records: u32) -> Service {
    let mut command = python.command(script);
    command.arg(records.to_string());
    for (field, offset) in [
        ("state", offset_of!(ControlBlock, state)),
        ("functions", offset_of!(ControlBlock, functions)),
        ("functions_offset", offset_of!(ControlBlock, functions_offset)),
        ("functions_capacity", offset_of!(ControlBlock, functions_capacity)),
        ("names_offset", offset_of!(ControlBlock, names_offset)),
        ("names_capacity", offset_of!(ControlBlock, names_capacity)),
    ] {
        command.arg(format!("{field}={offset}"));
    }
    start(&mut command)
}

#[test]
fn a_control_block_full_of_huge_names_is_bounded() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = everybody::python(|_| true).unwrap() else {
        return skip!("{}", everybody::NO_PYTHON);
    };
    let script = everybody::Copy::new(&folder_of(Path::new("control_block.py"))).unwrap();
    // Some, and more than there is room for.
    for records in [65, 65_536] {
        let service = filling(&python, script.path(), records);
        let tool = Tool::session(&["--duration", "2s"], service.pid(), "py:*/control_block.py:*\n");
        let ended = tool.finish();
        let warnings = ended.warnings();
        assert!(ended.peak_mib < BOUND_MIB, "{records} records: {} MiB", ended.peak_mib);
        assert!(warnings.iter().any(|warning| warning.contains("names")), "{records}: {warnings:?}");
    }
}

/// A process that writes this into the control block repeatedly.
fn scribbling(python: &PythonBuild, script: &Path, mode: &str) -> Service {
    let mut command = python.command(script);
    command.arg(mode);
    for (field, offset) in [
        ("state", offset_of!(ControlBlock, state)),
        ("notices", offset_of!(ControlBlock, notices)),
        ("applied_generation", offset_of!(ControlBlock, applied_generation)),
        ("functions", offset_of!(ControlBlock, functions)),
        ("functions_offset", offset_of!(ControlBlock, functions_offset)),
        ("python_version", offset_of!(ControlBlock, python_version)),
        ("floor", offset_of!(ControlBlock, floor)),
        ("names", offset_of!(ControlBlock, names)),
        ("names_offset", offset_of!(ControlBlock, names_offset)),
        ("surveyed", offset_of!(ControlBlock, surveyed)),
        ("calls_offset", offset_of!(ControlBlock, calls_offset)),
        ("times_offset", offset_of!(ControlBlock, times_offset)),
        ("callers_offset", offset_of!(ControlBlock, callers_offset)),
        ("times_unmatched", offset_of!(ControlBlock, times_unmatched)),
        ("times_without_room", offset_of!(ControlBlock, times_without_room)),
        ("callers_without_room", offset_of!(ControlBlock, callers_without_room)),
    ] {
        command.arg(format!("{field}={offset}"));
    }
    start(&mut command)
}

/// That the process runs on, and does its work.
fn assert_works(service: &mut Service, case: &str) {
    let calls = |service: &mut Service| service.ask("calls").unwrap()[0]["calls"].as_u64().unwrap();
    let before = calls(service);
    wait_until("more calls", || Ok(calls(service) > before)).unwrap_or_else(|why| panic!("{case}: {why}"));
}

#[test]
fn a_control_block_that_is_written_meanwhile_is_reported_with_care() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = everybody::python(|_| true).unwrap() else {
        return skip!("{}", everybody::NO_PYTHON);
    };
    let script = everybody::Copy::new(&folder_of(Path::new("scribbler.py"))).unwrap();
    let cases = ["nameless", "counts", "rows", "head", "all"];
    side_by_side::on_each(&cases, |mode| {
        for flags in [&["--times", "--callers"][..], &["--delay", "10us"]] {
            let case = format!("{mode} {flags:?}");
            let mut service = scribbling(&python, script.path(), mode);
            let flags = [flags, &["--duration", "2s"]].concat();
            let ended = Tool::session(&flags, service.pid(), "py:*/scribbler.py:victim\n").finish();
            let said = ended.said();
            assert!(!said.contains("panicked"), "{case}: {said}");
            // A claim that its helper failed, while the session waits for it, is refused.
            if ["head", "all"].contains(mode) && ended.status.code() == Some(4) {
                assert!(said.contains("the helper does not work in this process"), "{case}: {said}");
                assert_works(&mut service, &case);
                continue;
            }
            let report = ended.report();
            assert!(ended.peak_mib < BOUND_MIB, "{case}: {} MiB", ended.peak_mib);
            let warnings = ended.warnings();
            let functions = report["targets"][0]["functions"].as_array().unwrap();
            let is_named = |of: &Value| of["name"].as_str().is_some_and(|name| !name.is_empty());
            assert!(functions.iter().all(is_named), "{case}: {said}");
            let tells = |words: &str| warnings.iter().any(|warning| warning.contains(words));
            assert!(*mode != "nameless" || tells("have no name"), "{case}: {warnings:?}");
            assert!(*mode != "counts" || tells("cannot be true"), "{case}: {warnings:?}");
            assert_works(&mut service, &case);
        }
    });
}

#[test]
fn a_sweep_of_a_process_that_writes_its_counters_ends() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = everybody::python(|_| true).unwrap() else {
        return skip!("{}", everybody::NO_PYTHON);
    };
    let script = everybody::Copy::new(&folder_of(Path::new("scribbler.py"))).unwrap();
    side_by_side::on_each(&["counts", "rows", "all"], |mode| {
        let mut service = scribbling(&python, script.path(), mode);
        let flags = ["sweep", "--for", "6s", "--progress", "py:*/scribbler.py:victim"];
        let ended = Tool::start(&flags, service.pid(), "py:*/scribbler.py:victim\n").finish();
        let code = ended.status.code();
        assert!(code.is_some_and(|code| code != 101), "{mode}: {}", ended.said());
        assert!(!ended.stderr.contains("panicked"), "{mode}: {}", ended.said());
        assert_works(&mut service, mode);
    });
}

#[test]
fn a_perf_map_that_is_rewritten_is_bounded() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile("perf_map.c", &["-O1", "-fno-omit-frame-pointer", "-rdynamic", "-pthread"]);
    for (mode, targets) in
        [("trampolines", "py:*:*\n"), ("trampolines", "py:*/other.py:*\n"), ("garbage", "py:*:*\n")]
    {
        let service = start(Command::new(fixture.program()).arg(mode));
        // One that another user left it could not rewrite.
        service.remove_perf_map();
        let flags = ["--entry", "perf-map", "--duration", "5s"];
        let ended = Tool::session(&flags, service.pid(), targets).finish();
        let warnings = ended.warnings();
        assert!(ended.peak_mib < BOUND_MIB, "{mode}: {} MiB", ended.peak_mib);
        assert!(targets != "py:*:*\n" || !warnings.is_empty(), "{mode}");
        assert!(warnings.len() <= 101, "{mode}: {} warnings", warnings.len());
    }
}

#[test]
fn a_sparse_library_costs_no_more_than_what_is_on_disk() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile("host.c", &["-pthread", "-ldl"]);
    let library = library::make(&fixture, 10);
    library::inflate(&library, 24 * (40 << 20));
    let service = start(Command::new(fixture.program()).arg(&library).arg("keep"));
    for targets in ["native:*/libwork.so:work_*\n", "usdt:*/libwork.so:*:*\n", "py:*:*\n"] {
        let ended = Tool::start(&["list"], service.pid(), targets).finish();
        assert!(ended.status.code().is_some(), "{}", ended.said());
        assert!(ended.peak_mib < BOUND_MIB, "{targets}: {} MiB", ended.peak_mib);
        let says = format!("{}{}", ended.stdout, ended.stderr);
        assert!(targets.starts_with("py") || says.contains("more than"), "{targets}: {}", ended.said());
    }
}

#[test]
fn debug_files_of_holes_are_not_read_to_their_end() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    const LIBRARIES: usize = 30;
    let fixture = compile("host.c", &["-pthread", "-ldl"]);
    let (library, copies) = library::linked_to_holes(&fixture, LIBRARIES);
    let mut command = Command::new(fixture.program());
    command.arg(&library).arg("keep").env("LD_PRELOAD", copies.join(":"));
    let service = start(&mut command);
    let ended = Tool::start(&["list"], service.pid(), "native:*/libcopy*:work_1\n").finish();
    assert!(ended.status.success(), "{}", ended.said());
    let told = ended.stdout.matches("no checksum is made of a file with so many holes").count();
    assert_eq!(told, LIBRARIES, "{}", ended.said());
    assert!(ended.stdout.contains("selects 30 functions"), "{}", ended.said());
}

/// A process that cuts its library.
fn cutting(functions: usize, mode: &str) -> (Fixture, Service) {
    let fixture = compile("host.c", &["-pthread", "-ldl"]);
    let library = library::make(&fixture, functions);
    let service = start(Command::new(fixture.program()).arg(&library).arg(mode));
    (fixture, service)
}

const WORK: &str = "native:*/libwork.so*:work_*\n";

#[test]
fn a_library_that_is_cut_does_no_harm_to_a_list() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = cutting(3_000, "cut");
    for turn in 0..30 {
        let ended = Tool::start(&["list"], service.pid(), WORK).finish();
        assert_eq!(ended.status.code(), Some(0), "turn {turn}: {}", ended.said());
    }
    assert!(service.is_running());
}

#[test]
fn a_library_that_is_cut_does_no_harm_to_an_attach() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = cutting(3_000, "cut");
    for turn in 0..20 {
        let ended = Tool::session(&["--duration", "50ms"], service.pid(), WORK).finish();
        assert_eq!(ended.status.code(), Some(0), "turn {turn}: {}", ended.said());
        assert!(ended.report()["targets"][0].is_object());
    }
    assert!(service.is_running());
}

#[test]
fn libraries_that_are_loaded_and_cut_do_no_harm_to_a_session() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    side_by_side::on_each(&[0, 1, 2, 3, 4], |turn| {
        let (_fixture, mut service) = cutting(500, "copies");
        let ended = Tool::session(&["--duration", "3s"], service.pid(), WORK).finish();
        assert!(ended.report()["targets"][0].is_object(), "turn {turn}");
        assert!(service.is_running());
    });
}
