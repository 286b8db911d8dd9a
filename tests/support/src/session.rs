//! The loader attached to a process: start it, wait until it is attached, end it, read its report.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    tool::{self, Run, Running},
    wait::PATIENCE,
};

/// Says why no test can attach anything here, where that is so.
pub fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("attaching needs root");
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return Some("this kernel has no uprobes (CONFIG_UPROBE_EVENTS)");
    }
    None
}

/// Says why no test can attach with one link to many places here, where that is so.
pub fn obstacle_to_uprobe_multi() -> Option<&'static str> {
    obstacle().or_else(|| is_before(6, 6).then_some("before Linux 6.6 there are no uprobe_multi links"))
}

/// Says why calls cannot be delayed by `frequency` here, where that is so.
pub fn obstacle_to_frequency() -> Option<&'static str> {
    is_before(5, 15).then_some("before Linux 5.15 every n-th call cannot be told")
}

/// Says why the BPF program cannot spin long delays here, where that is so.
pub fn obstacle_to_long_spins() -> Option<&'static str> {
    is_before(5, 17).then_some("before Linux 5.17 the BPF program spins short delays alone")
}

/// Says why what is executed under `run` is not held until it is covered, where that is so.
pub fn obstacle_to_holding() -> Option<&'static str> {
    is_before(5, 17)
        .then_some("before Linux 5.17 programs that are executed are not held until they are covered")
}

/// Says why the helper cannot be brought into a process whose main thread has ended here, where that is so.
pub fn obstacle_to_other_threads() -> Option<&'static str> {
    is_before(6, 9).then_some("before Linux 6.9 a process without its main thread shows no descriptors")
}

/// Whether the running kernel is older than a version.
fn is_before(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version: (u32, u32)| version < (major, minor))
}

/// The command that attaches to a process; a targets file of this text is made in `folder`.
pub fn command(folder: &Path, pid: i32, targets: &str, flags: &[&str]) -> Result<Command> {
    command_of(&tool::path()?, folder, pid, targets, flags)
}

/// The same with a loader of the caller's choice.
fn command_of(tool: &Path, folder: &Path, pid: i32, targets: &str, flags: &[&str]) -> Result<Command> {
    let file = folder.join("targets.txt");
    fs::write(&file, targets).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = Command::new(tool);
    command.args(["--pid", &pid.to_string(), "--targets"]).arg(file).args(flags);
    Ok(command)
}

/// The loader while it is attached. Dropping it kills it.
#[derive(Debug)]
pub struct Attached {
    running: Running,
    folder: TempDir,
}

/// How a session ended, and what it counted.
#[derive(Debug)]
pub struct Ended {
    /// What the loader left.
    pub run: Run,
    /// Its JSON report.
    pub report: Value,
}

impl Attached {
    /// Attaches to a process with targets of this text, and waits until everything is attached.
    pub fn start(pid: i32, targets: &str, flags: &[&str]) -> Result<Self> {
        Self::start_with(pid, targets, flags, |_| ())
    }

    /// The same, with a last word on the command before it runs.
    pub fn start_with(
        pid: i32,
        targets: &str,
        flags: &[&str],
        adjust: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        Self::start_tool(&tool::path()?, pid, targets, flags, adjust)
    }

    /// The same with a loader of the caller's choice.
    pub fn start_tool(
        tool: &Path,
        pid: i32,
        targets: &str,
        flags: &[&str],
        adjust: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let mut command = command_of(tool, folder.path(), pid, targets, flags)?;
        command.arg("--json").arg(folder.path().join("report.json"));
        // What it does shows in failures.
        command.arg("--verbose");
        adjust(&mut command);
        let attached = Self { running: Running::start(&mut command)?, folder };
        attached.wait_for("attached; ")?;
        Ok(attached)
    }

    /// The loader's process id.
    pub fn pid(&self) -> i32 {
        self.running.pid()
    }

    /// Writes another targets file over that of the session, which has to be told by SIGUSR1.
    pub fn write_targets(&self, targets: &str) -> Result<()> {
        let file = self.folder.path().join("targets.txt");
        fs::write(&file, targets).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Waits until the loader has written this to standard error.
    pub fn wait_for(&self, text: &str) -> Result<()> {
        self.running.wait_for_stderr(text, PATIENCE)
    }

    /// What the loader has written to standard error by now.
    pub fn stderr(&self) -> String {
        self.running.stderr()
    }

    /// Whether the loader has written this to standard error by now.
    pub fn has_said(&self, text: &str) -> bool {
        self.running.wait_for_stderr(text, Duration::ZERO).is_ok()
    }

    /// Sends the loader a signal.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.running.signal(signal)
    }

    /// Stops the session as Ctrl-C does.
    pub fn stop(mut self) -> Result<Ended> {
        self.signal(Signal::INT)?;
        self.finish()
    }

    /// Waits until the session has ended by itself. Another exit code than 0 is an error.
    pub fn finish(self) -> Result<Ended> {
        let report = self.report_path();
        let run = self.running.finish(PATIENCE)?;
        ensure!(run.status.success(), "{}\n{}", run.status, run.stderr);
        let text = fs::read(&report).with_context(|| format!("no report in {}", report.display()))?;
        Ok(Ended { report: serde_json::from_slice(&text).context("the report is not JSON")?, run })
    }

    /// Kills the loader as nothing can be prepared for, and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.running.finish(PATIENCE)?;
        Ok(())
    }

    fn report_path(&self) -> PathBuf {
        self.folder.path().join("report.json")
    }
}

impl Ended {
    /// A target's entry, by its position in the targets file.
    pub fn target(&self, position: usize) -> &Value {
        &self.report["targets"][position]
    }

    /// Calls and delayed calls of a target.
    pub fn counts(&self, target: usize) -> (u64, u64) {
        let count = |field: &str| self.target(target)[field].as_u64().unwrap_or(u64::MAX);
        (count("calls"), count("delayed"))
    }

    /// The names of a target's functions, sorted.
    pub fn functions(&self, target: usize) -> Vec<&str> {
        let functions = self.target(target)["functions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut names: Vec<_> = functions.iter().filter_map(|function| function["name"].as_str()).collect();
        names.sort_unstable();
        names
    }
}
