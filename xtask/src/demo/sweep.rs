//! The end of the demo: the same question for all functions of the service at once, by `sweep`.

use std::{
    fs::{self, File},
    os::unix::{
        fs::{MetadataExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use speed_bump_testing::places;

use super::stop::{GLANCE, Stop};

/// The tool's exit code where no verdict stands.
const NOT_VALID: i32 = 8;

/// A running sweep. Dropping it ends it.
struct Sweep(Child);

impl Drop for Sweep {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            // The signal makes it detach and end.
            let pid = Pid::from_child(&self.0);
            let _ = kill_process(pid, Signal::INT);
            let _ = self.0.wait();
        }
    }
}

/// Sweeps for this long. Prints the result, and returns where the page is.
pub(super) fn run(tool: &Path, pid: i32, span: Duration, stop: &Stop) -> Result<PathBuf> {
    let folder = places::target().join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let [page, json, text] = ["report.html", "report.json", "report.txt"].map(|name| folder.join(name));
    let mut command = Command::new(tool);
    command.args(["sweep", "--quiet", "--pid", &pid.to_string(), "--for", &format!("{}s", span.as_secs())]);
    command.arg("--json").arg(&json).arg("--html").arg(&page);
    let printed = File::create(&text).with_context(|| format!("cannot write {}", text.display()))?;
    // The sweep has a process group of its own, so that Ctrl-C reaches only us.
    let child = command.stdout(printed).process_group(0).spawn();
    let mut sweep = Sweep(child.with_context(|| format!("cannot run {}", tool.display()))?);
    let status = loop {
        match sweep.0.try_wait()? {
            Some(status) => break status,
            None => stop.sleep(GLANCE)?,
        }
    };
    // No trustworthy result is a result too: the report says why.
    if !status.success() && status.code() != Some(NOT_VALID) {
        bail!("the sweep ended with {status}");
    }
    let found = fs::read_to_string(&text)?;
    // The answer, the table and the plot; the page has the details.
    for line in found.lines().take_while(|line| !line.starts_with("unit: ")) {
        println!("{line}");
    }
    for path in [&folder, &page, &json, &text] {
        give_back(path);
    }
    Ok(page)
}

/// Files under target belong to the user who builds there, not to root.
fn give_back(path: &Path) {
    if let Ok(owner) = fs::metadata(places::target()) {
        let _ = chown(path, Some(owner.uid()), Some(owner.gid()));
    }
}
