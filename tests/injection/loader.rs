//! A loader in a process of its own, which tests kill and stop.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, missing_docs)]

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use speed_bump_linux::process::Process;
use speed_bump_session::inject::{InjectError, Limits, inject};
use speed_bump_testing::{Lines, wait::wait_for};

use crate::support;

/// What the loader of these tests is told: the process, the file with the image, and what becomes of it.
const TARGET: &str = "SPEED_BUMP_TEST_TARGET";
const IMAGE: &str = "SPEED_BUMP_TEST_IMAGE";
const FATE: &str = "SPEED_BUMP_TEST_FATE";

/// Not a test by itself: the loader that others start.
#[test]
#[ignore = "run by other tests, as a process of its own"]
fn loader() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let process = support::open(target.parse().unwrap());
    let image = std::fs::read(std::env::var(IMAGE).unwrap()).unwrap();
    let interpreters = support::interpreters(&process);
    let fate = std::env::var(FATE).unwrap();
    let behaviour = if fate == "attach" { b'K' } else { b'Q' };
    let mut fill = |block: &File| {
        let signal = match fate.as_str() {
            "control" => Some(Signal::KILL),
            "stop" => Some(Signal::STOP),
            _ => None,
        };
        if let Some(signal) = signal {
            kill_process(rustix::process::getpid(), signal)?;
        }
        block.set_len(4096)?;
        block.write_all_at(&[behaviour], 0)
    };
    println!("ready");
    loop {
        match inject(
            &process,
            &process.program().unwrap(),
            &image,
            &interpreters,
            &mut fill,
            Limits::default(),
        ) {
            // The helper quits by itself, so that the next session is let in.
            Ok(_) | Err(InjectError::InUse { .. }) => {}
            // Its limits go by the clock, also while the test has it stopped.
            Err(error) if fate == "any" => eprintln!("the loader tries again: {error}"),
            Err(error) => panic!("{fate}: {error}"),
        }
    }
}

/// The loader that was started. Dropping it kills it: what it traces stands still as long as it does.
pub struct Loader {
    pub child: Child,
    /// Processes that it started and that were stopped with it.
    stopped: Vec<OwnedFd>,
}

impl Drop for Loader {
    fn drop(&mut self) {
        // They may have ended by now, all of them.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.continue_children();
    }
}

pub fn start_loader(target: &Process, image: &Path, fate: &str) -> Loader {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "loader::loader", "--nocapture"])
        .env(TARGET, target.pid().to_string())
        .env(IMAGE, image)
        .env(FATE, fate)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::read(child.stdout.take().unwrap());
    while lines.line().is_ok_and(|line| !line.contains("ready")) {}
    Loader { child, stopped: Vec::new() }
}

pub fn image_file(folder: &Path, variant: &str) -> std::path::PathBuf {
    let file = folder.join(variant);
    std::fs::write(&file, support::image_variant(variant)).unwrap();
    file
}

impl Loader {
    fn continue_children(&mut self) {
        for child in self.stopped.drain(..) {
            // It may have ended.
            let _ = pidfd_send_signal(&child, Signal::CONT);
        }
    }

    /// Lets it go on, with what was stopped with it.
    pub fn go_on(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "the loader has ended by itself");
        self.continue_children();
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Stops it, and waits until all its threads stand still. What would continue it is stopped first.
    pub fn stop(&mut self) {
        wait_for("the loader to stop", || {
            let children = self.children();
            for child in &children {
                let Ok(pidfd) = pidfd_open(*child, PidfdFlags::empty()) else { continue };
                // It may have ended.
                let _ = pidfd_send_signal(&pidfd, Signal::STOP);
                self.stopped.push(pidfd);
            }
            kill_process(self.pid(), Signal::STOP).unwrap();
            let stand = children.into_iter().chain([self.pid()]).all(stands_still);
            stand.then_some(())
        })
        .unwrap();
    }

    /// The processes that it has started.
    fn children(&self) -> Vec<Pid> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of_thread = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.filter_map(Pid::from_raw).collect::<Vec<_>>()
        };
        threads.map(Result::unwrap).flat_map(of_thread).collect()
    }
}

/// Whether all threads of a process are stopped, or it has ended.
pub fn stands_still(process: Pid) -> bool {
    let folder = format!("/proc/{}/task", process.as_raw_nonzero());
    let Ok(threads) = std::fs::read_dir(folder) else { return true };
    let stands = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat"));
        stat.map_or(true, |stat| stat.contains(") T ") || stat.contains(") Z "))
    };
    threads.map(Result::unwrap).all(stands)
}
