//! One guest from boot to end: it runs a job, and its results come back.
//!
//! A job is a script, `/guest/job`. The files that it leaves in `/results` come back when it ends, and
//! whenever it runs `keep-results`. `/results/status`, which the first process writes, shows that it ended at
//! all: QEMU's own exit code is the same for a panic and a power-off.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    files::Files,
    kernel::Kernel,
    qemu::{Disk, Machine, Qemu},
    root,
};
use crate::shell;

/// The most bytes of results, with a margin.
const RESULTS_BYTES: u64 = 64 << 20;
/// What the kernel writes when it panics.
const PANIC: &str = "Kernel panic - not syncing";
/// How the first process and jobs begin a line about progress.
pub(super) const TOLD: &str = "guest: ";
/// Lines of the console in the report of a guest's death.
const TAIL: usize = 40;

/// A guest that is about to boot.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    /// The QEMU that runs it.
    pub(crate) qemu: &'a Qemu,
    /// The kernel that it boots.
    pub(crate) kernel: &'a Kernel,
    /// The image of its root file system, which stays as it is.
    pub(crate) root: &'a Path,
    /// The files that are added to it, with `/guest/job` among them.
    pub(crate) files: &'a Files,
    /// The folder for disks, console and results; its contents are replaced.
    pub(crate) folder: &'a Path,
    /// More arguments for the kernel.
    pub(crate) arguments: &'a str,
}

/// How a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The job ended, with this exit status.
    Finished(i32),
    /// The kernel panicked.
    Panicked,
    /// It was still running when its time was over.
    TimedOut,
    /// QEMU ended, and the job had not.
    Lost,
}

/// What a guest left behind.
#[derive(Debug)]
pub(crate) struct Left {
    /// How it ended.
    pub(crate) end: End,
    /// The folder with its results.
    pub(crate) results: PathBuf,
    /// The whole text of its console.
    pub(crate) console: PathBuf,
}

impl Guest<'_> {
    /// Boots it, passes its lines about progress to `said`, and kills it after `limit`.
    pub(crate) fn run(&self, limit: Duration, mut said: impl FnMut(&str)) -> Result<Left> {
        let mut command = self.prepare()?;
        let console = self.folder.join("console.log");
        let mut log =
            File::create(&console).with_context(|| format!("cannot write {}", console.display()))?;
        let mut child =
            Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run QEMU")?);
        let output = child.0.stdout.take().context("QEMU has no standard output")?;
        // A thread reads, so that waiting for a line can end.
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    break;
                }
            }
        });
        let deadline = Instant::now() + limit;
        let (mut panicked, mut timed_out) = (false, false);
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    writeln!(log, "{line}").context("cannot write the console's log")?;
                    panicked |= line.contains(PANIC);
                    if let Some(told) = line.strip_prefix(TOLD) {
                        said(told);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    timed_out = true;
                    break;
                }
            }
        }
        // If its time is over, QEMU still runs. Otherwise QEMU has closed its output, and is ending.
        if timed_out {
            child.0.kill().context("cannot kill QEMU")?;
        }
        let status = child.0.wait().context("cannot wait for QEMU")?;
        let results = self.unpack_results()?;
        let finished = fs::read_to_string(results.join("status")).ok().and_then(|s| s.trim().parse().ok());
        let end = match finished {
            Some(status) => End::Finished(status),
            None if panicked => End::Panicked,
            None if timed_out => End::TimedOut,
            None if status.success() => End::Lost,
            None => bail!("QEMU failed: {status}"),
        };
        Ok(Left { end, results, console })
    }

    /// Boots it with its console on this terminal, and waits for its end. Its job's results come back too.
    pub(crate) fn run_here(&self) -> Result<PathBuf> {
        let mut command = self.prepare()?;
        let mut child = Running(command.spawn().context("cannot run QEMU")?);
        child.0.wait().context("cannot wait for QEMU")?;
        self.unpack_results()
    }

    fn prepare(&self) -> Result<Command> {
        if self.folder.exists() {
            fs::remove_dir_all(self.folder)
                .with_context(|| format!("cannot remove {}", self.folder.display()))?;
        }
        fs::create_dir_all(self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        let (files, results) = (self.folder.join("files.img"), self.results_image());
        self.files.pack(&files)?;
        File::create(&results)
            .and_then(|file| file.set_len(RESULTS_BYTES))
            .with_context(|| format!("cannot make {}", results.display()))?;
        let disks = [
            Disk { name: "root", image: self.root, is_written: false },
            Disk { name: "files", image: &files, is_written: false },
            Disk { name: "results", image: &results, is_written: true },
        ];
        let arguments =
            format!("root={} rootfstype=ext4 rootwait rw init=/guest/init {}", root::DEVICE, self.arguments);
        Ok(self.qemu.command(&Machine {
            kernel: &self.kernel.image,
            arguments: &arguments,
            disks: &disks,
            processors: 2,
            memory_mib: 2048,
        }))
    }

    fn results_image(&self) -> PathBuf {
        self.folder.join("results.img")
    }

    /// Delete the disks: they are large, and `results` has their contents.
    fn unpack_results(&self) -> Result<PathBuf> {
        let results = self.folder.join("results");
        fs::create_dir(&results).with_context(|| format!("cannot make {}", results.display()))?;
        let image = self.results_image();
        // A guest that died while it wrote leaves the beginning of a tar: extract the complete files.
        let unpacked = shell::output(
            Command::new("tar").arg("--extract").arg("--file").arg(&image).arg("--directory").arg(&results),
        );
        if let Err(error) = unpacked {
            eprintln!("warning: the guest's results are not whole: {error:#}");
        }
        for image in [image, self.folder.join("files.img")] {
            let _ = fs::remove_file(image);
        }
        Ok(results)
    }
}

impl Left {
    /// The last lines of the console.
    pub(crate) fn tail(&self) -> String {
        fs::read_to_string(&self.console).map(|text| tail(&text)).unwrap_or_default()
    }
}

/// QEMU while it runs. Dropping it kills it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The panic and what came right before it; without a panic, the last lines.
fn tail(console: &str) -> String {
    let lines: Vec<_> = console.lines().collect();
    let end = lines.iter().position(|line| line.contains(PANIC)).map_or(lines.len(), |at| at + TAIL / 2);
    let end = end.min(lines.len());
    lines[end.saturating_sub(TAIL)..end].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_shows_a_panic_and_what_led_to_it() {
        let before: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert!(tail(&before).starts_with("line 60\n") && tail(&before).ends_with("\nline 99"));
        let console = format!("{before}{PANIC}: Fatal exception\n{before}");
        let shown = tail(&console);
        assert!(shown.starts_with("line 80\n") && shown.contains(PANIC), "{shown}");
        assert_eq!(shown.lines().count(), TAIL);
        assert_eq!(tail(""), "");
    }
}
