//! Programs that try to turn an injection against whoever injects: none gets root to write into a file of its choice, and
//! none has another program take the helper.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "process/fixture.rs"]
mod fixture;
#[path = "inject/support.rs"]
mod support;

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use fixture::{Running, is_root};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use speed_bump_testing::{Fixture, skip};
use speed_bump_user::{inject::InjectError, process::Process};

/// How often each program gets its chance.
const TRIES: usize = 40;

fn compile(source: &str) -> Fixture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile_injection");
    let program = Fixture::compile(&folder.join(source), &["-O1", "-pthread"]).unwrap();
    fs::set_permissions(program.program(), fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// Injects into one process after another that puts `victim` in the place of the helper's memory file; how often it was
/// found out.
fn inject_while_swapped(by: &str, victim: &Path) -> usize {
    let program = compile("swaps.c");
    let mut found_out = 0;
    for _ in 0..TRIES {
        let running = Running::start_and_wait(Command::new(program.program()).arg(by).arg(victim));
        let process = Process::open(running.pid()).unwrap();
        match support::inject_here(&process) {
            Ok(injected) => support::leave(&process, &injected),
            Err(InjectError::NotOurs { descriptor, .. }) => {
                assert!(descriptor < 64, "{descriptor}");
                found_out += 1;
            }
            // It was exchanged after it had been taken, and the loader found no library in its place, or the helper no block.
            Err(
                InjectError::Refused { .. } | InjectError::Helper { .. } | InjectError::RemoteCall { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(process.is_alive());
    }
    found_out
}

/// A file of root's that nobody else may read or write, in a folder that everybody may search.
fn secret(folder: &Path) -> PathBuf {
    let path = folder.join("secret");
    fs::write(&path, "as it was").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn no_file_is_overwritten_that_a_thread_puts_in_place_of_the_memory_file() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = fixture::directory();
    let secret = secret(folder.path());
    let found_out = inject_while_swapped("thread", &secret);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was");
    assert!(found_out > 0, "in {TRIES} tries the file was never exchanged in time");
}

#[test]
fn processes_that_share_descriptors_are_no_better() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = fixture::directory();
    let secret = secret(folder.path());
    let found_out = inject_while_swapped("process", &secret);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was");
    assert!(found_out > 0, "in {TRIES} tries the file was never exchanged in time");
}

#[test]
fn a_pipe_in_place_of_the_memory_file_holds_nobody_up() {
    if !is_root() {
        return skip!("needs root, to start programs of another user");
    }
    let folder = fixture::directory();
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let found_out = inject_while_swapped("thread", &pipe);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(&pipe).unwrap().size(), 0);
    assert!(found_out > 0, "in {TRIES} tries the file was never exchanged in time");
}
