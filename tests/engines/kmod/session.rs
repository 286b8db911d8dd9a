//! Sessions with the kernel module, and looks at what is in it.

use std::{fs, path::Path, process::Command};

use speed_bump_session::engine::kmod::{Module, RECORDS};
use speed_bump_testing::{
    Attached, Fixture, Service, session,
    tool::{self, Running},
    wait::PATIENCE,
};

use super::loaded::{FOLDER, Kernel, busybox};

pub(crate) const KMOD: [&str; 2] = ["--engine", "kmod"];
pub(crate) const HOT: &str = "native:*/service:hot\n";

pub(crate) fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    KMOD.into_iter().chain(flags.iter().copied()).collect()
}

pub(crate) fn start(threads: u32) -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg(threads.to_string())).unwrap();
    (fixture, service)
}

pub(crate) fn load(kernel: &Kernel) {
    busybox(&["insmod", kernel.module().to_str().unwrap()]);
    assert!(Path::new(FOLDER).is_dir());
}

/// The module, loaded, unless this machine cannot have it.
pub(crate) fn loaded() -> Option<(Kernel, Module)> {
    let kernel = Kernel::take()?;
    load(&kernel);
    Some((kernel, Module::open(Path::new(FOLDER)).unwrap()))
}

pub(crate) fn attach(service: &Service, targets: &str, flags: &[&str]) -> Attached {
    Attached::start(service.pid(), targets, &with(flags)).unwrap()
}

/// Runs the tool to an end that comes by itself: its exit code, and all that it said.
pub(crate) fn refused(pid: i32, targets: &str, flags: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    said(&mut session::command(folder.path(), pid, targets, flags).unwrap())
}

/// The exit code of a command that ends by itself, and all that it said.
pub(crate) fn said(command: &mut Command) -> (Option<i32>, String) {
    let run = Running::start(command).unwrap().finish(PATIENCE).unwrap();
    (run.status.code(), run.stdout + &run.stderr)
}

/// Runs `list`, which cleans up like any run with the module.
pub(crate) fn list(pid: i32, targets: &str) -> String {
    list_with(pid, targets, &[])
}

pub(crate) fn list_with(pid: i32, targets: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.txt");
    fs::write(&file, targets).unwrap();
    let mut command = Command::new(tool::path().unwrap());
    command.args(["list", "--pid", &pid.to_string(), "--targets"]).arg(file).args(with(flags));
    let (code, text) = said(&mut command);
    assert_eq!(code, Some(0), "{text}");
    text
}

pub(crate) fn names(module: &Module) -> Vec<String> {
    module.listing().unwrap().targets.into_iter().map(|target| target.name).collect()
}

pub(crate) fn notes() -> usize {
    let notes = fs::read_dir(RECORDS).into_iter().flatten().flatten();
    // Other files there are not of the module: what calibration found is kept beside them.
    let is_note = |name: &str| name.starts_with("kmod-") && name.ends_with(".json");
    notes.filter(|entry| is_note(&entry.file_name().to_string_lossy())).count()
}

#[track_caller]
pub(crate) fn assert_empty(module: &Module) {
    assert_eq!((names(module), module.is_enabled().unwrap(), notes()), (vec![], false, 0));
}
