//! The same functions in executables that were built, linked and stripped in different ways.

#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command};

use speed_bump_testing::{
    Attached, Fixture, Service,
    session::{command, obstacle},
    skip,
    tool::Running,
    wait::PATIENCE,
};

/// `inner` is static, and `outer` calls it twice.
const TARGETS: &str = "native:*/service:hot\nnative:*/service:inner\nnative:*/libwork.so:work_hot\n";

fn start(fixture: &Fixture) -> Service {
    Service::start(Command::new(fixture.program()).arg("0")).unwrap()
}

fn counts_are_exact(fixture: &Fixture) {
    let mut service = start(fixture);
    let session = Attached::start(service.pid(), TARGETS, &["--strict"]).unwrap();
    service.ask("call hot 100").unwrap();
    service.ask("call outer 10").unwrap();
    service.ask("spread work_hot 25 4").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!([0, 1, 2].map(|target| ended.counts(target)), [(100, 100), (20, 20), (100, 100)]);
    assert!(service.quit().unwrap().success());
}

fn build_and_count(flags: &[&str], service_flags: &[&str]) {
    counts_are_exact(&Fixture::service_linked(flags, service_flags).unwrap());
}

fn binutils(program: &str, arguments: &[&str], folder: &Path) {
    let status = Command::new(program).args(arguments).current_dir(folder).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

#[test]
fn position_independent() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    build_and_count(&["-O2"], &["-fPIE", "-pie"]);
}

#[test]
fn at_fixed_addresses() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    build_and_count(&["-O2"], &["-no-pie", "-fno-pie"]);
}

#[test]
fn without_optimisation_and_with_branch_targets_marked() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if cfg!(target_arch = "x86_64") {
        build_and_count(&["-O0", "-fcf-protection=full"], &[]);
    } else {
        build_and_count(&["-O0"], &[]);
    }
}

#[test]
fn optimised_for_size_without_frame_pointers() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    build_and_count(&["-Os", "-fomit-frame-pointer"], &[]);
}

#[test]
fn stripped_with_a_debug_file_beside_it() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    binutils("objcopy", &["--only-keep-debug", "service", "service.debug"], fixture.folder());
    binutils("strip", &["--strip-all", "service"], fixture.folder());
    binutils("objcopy", &["--add-gnu-debuglink=service.debug", "service"], fixture.folder());
    counts_are_exact(&fixture);
}

#[test]
fn stripped_without_a_debug_file() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    binutils("strip", &["--strip-all", "service"], fixture.folder());
    let service = start(&fixture);
    let flags = ["--strict"];
    let mut command = command(fixture.folder(), service.pid(), "native:*/service:hot\n", &flags).unwrap();
    let run = Running::start(&mut command).unwrap().finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("stripped"), "{}", run.stderr);
}

#[test]
fn a_program_and_its_library_deleted_while_they_run() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let mut service = start(&fixture);
    std::fs::remove_file(fixture.program()).unwrap();
    std::fs::remove_file(fixture.library()).unwrap();
    // Another file takes the name: it must not be mistaken for the one that runs.
    std::fs::write(fixture.library(), "no library").unwrap();
    let session = Attached::start(service.pid(), TARGETS, &["--strict"]).unwrap();
    service.ask("call hot 10").unwrap();
    service.ask("call work_hot 20").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!([ended.counts(0), ended.counts(2)], [(10, 10), (20, 20)]);
}
