//! The loader is stopped while it has borrowed a thread, as by Ctrl-Z: the process goes on all the same, and
//! the loader stands still as it was told to.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use speed_bump_testing::{pythons, skip, wait::wait_for};

use crate::{
    loader::{Loader, image_file, stands_still, start_loader},
    program::Program,
};

/// Prints all the time.
const PRINTING: &str = "import time\nwhile 1: print(flush=True); time.sleep(0.001)";
/// Stops at whatever moment.
const STOPS: u32 = 100;

/// The loader stops without a borrowed thread, and the program goes on.
fn goes_on_without(loader: &Loader, program: &Program, when: &str) {
    let pid = program.process.pid();
    let is_traced = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).unwrap();
        !status.contains("TracerPid:\t0\n")
    };
    let alone = || (stands_still(loader.pid()) && !is_traced()).then_some(());
    wait_for("the loader to stand still and to trace nothing", alone)
        .unwrap_or_else(|error| panic!("{when}: {error}"));
    program.skip_lines();
    program.prints().unwrap_or_else(|error| panic!("{when} it says nothing: {error}"));
}

#[test]
fn a_loader_that_is_stopped_with_a_thread_borrowed() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(python, PRINTING);
    let image = image_file(folder.path(), "ONE");
    let loader = start_loader(&program.process, &image, "stop");
    for round in 0..3 {
        goes_on_without(&loader, &program, &format!("in round {round}"));
        kill_process(loader.pid(), Signal::CONT).unwrap();
    }
    drop(loader);
    program.prints().unwrap();
}

#[test]
fn a_loader_that_is_stopped_at_any_moment() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(python, PRINTING);
    let image = image_file(folder.path(), "ONE");
    let loader = start_loader(&program.process, &image, "any");
    for stop in 0..STOPS {
        std::thread::sleep(Duration::from_micros(u64::from(stop) * 370 % 10_000));
        kill_process(loader.pid(), Signal::STOP).unwrap();
        goes_on_without(&loader, &program, &format!("after stop {stop}"));
        kill_process(loader.pid(), Signal::CONT).unwrap();
    }
    drop(loader);
    program.prints().unwrap();
}
