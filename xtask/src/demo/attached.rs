//! The tool at work on the demo's service.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use serde_json::Value;
use speed_bump_testing::tool::Running;

use super::stop::Stop;

/// From its start to where it is surely attached: it measures the machine first.
const SETTLE: Duration = Duration::from_millis(1500);
/// Detaching takes milliseconds; longer than this is a fault.
const PATIENCE: Duration = Duration::from_secs(30);

/// The attached tool. Dropping it kills it, and the kernel detaches it.
#[derive(Debug)]
pub(super) struct Attached {
    tool: Running,
    report: PathBuf,
}

/// What the tool reports of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    /// Calls that got a delay.
    pub(super) delayed: u64,
    /// What they got together.
    pub(super) delivered: Duration,
}

/// What to attach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order<'a> {
    /// The tool.
    pub(super) tool: &'a Path,
    /// Where its files go.
    pub(super) folder: &'a Path,
    /// The process.
    pub(super) pid: i32,
    /// Lines of the targets file.
    pub(super) targets: &'a [&'a str],
    /// As the tool's flag takes it.
    pub(super) delay: &'a str,
}

impl Attached {
    /// Attaches, and waits until the tool has settled.
    pub(super) fn start(order: Order<'_>, stop: &Stop) -> Result<Self> {
        let Order { tool, folder, pid, targets, delay } = order;
        let file = folder.join("targets.txt");
        fs::write(&file, targets.join("\n") + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
        let report = folder.join("session.json");
        let mut command = Command::new(tool);
        command.args(["--quiet", "--strict", "--pid", &pid.to_string(), "--delay", delay]);
        command.arg("--targets").arg(&file).arg("--json").arg(&report).process_group(0);
        let mut tool = Running::start(&mut command)?;
        stop.sleep(SETTLE)?;
        if !tool.is_running() {
            let run = tool.finish(PATIENCE)?;
            bail!("the tool ended: {}\n{}", run.status, run.stderr);
        }
        Ok(Self { tool, report })
    }

    /// Detaches, and returns what the tool reports of each target.
    pub(super) fn detach(mut self) -> Result<Vec<Delivered>> {
        self.tool.signal(Signal::INT)?;
        let run = self.tool.finish(PATIENCE)?;
        if !run.status.success() {
            bail!("the tool failed: {}\n{}", run.status, run.stderr);
        }
        let report = fs::read(&self.report).with_context(|| format!("no {}", self.report.display()))?;
        let report: Value = serde_json::from_slice(&report).context("the tool's report is not JSON")?;
        let targets = report["targets"].as_array().context("the tool's report has no targets")?;
        let delivered = |target: &Value| {
            Some(Delivered {
                delayed: target["delayed"].as_u64()?,
                delivered: Duration::from_nanos(target["delivered_ns"].as_u64()?),
            })
        };
        targets.iter().map(delivered).collect::<Option<_>>().context("the tool's report lacks numbers")
    }
}
