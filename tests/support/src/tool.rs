//! The built loader, `speed-bump-ebpf`.

use std::{
    env,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal};

use crate::service::wait;

/// What a run of the loader left.
#[derive(Clone, Debug)]
pub struct Run {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// Its standard error, invalid UTF-8 replaced.
    pub stderr: String,
}

/// The loader that cargo built beside the running test or xtask.
///
/// `SPEED_BUMP_TOOL` names another one.
pub fn path() -> Result<PathBuf> {
    if let Some(path) = env::var_os("SPEED_BUMP_TOOL") {
        return Ok(path.into());
    }
    let here = env::current_exe().context("cannot read /proc/self/exe")?;
    // Tests lie in `deps`, one below the binaries.
    let found = here.ancestors().skip(1).take(2).map(|folder| folder.join("speed-bump-ebpf"));
    found.into_iter().find(|path| path.is_file()).with_context(|| {
        format!(
            "no speed-bump-ebpf near {}: run `cargo build --package speed-bump-user` first",
            here.display()
        )
    })
}

/// Runs the loader to its end, killing it after `limit`.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: &[S], limit: Duration) -> Result<Run> {
    Running::start(Command::new(path()?).args(arguments))?.finish(limit)
}

/// A running loader. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: std::process::Child,
    stdout: Option<thread::JoinHandle<Vec<u8>>>,
    stderr: Option<thread::JoinHandle<Vec<u8>>>,
}

impl Running {
    /// Starts a command, usually one of [`path`], with its output collected.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Ok(Self { child, stdout, stderr })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        // Not yet reaped, as only `finish` and `drop` reap: the PID is still its own.
        let pid = Pid::from_raw(self.pid()).context("a child has a positive PID")?;
        rustix::process::kill_process(pid, signal).with_context(|| format!("cannot send {signal:?}"))
    }

    /// Waits for its end and kills it after `limit`, which is an error that shows its output so far.
    pub fn finish(mut self, limit: Duration) -> Result<Run> {
        let status = wait(&mut self.child, limit)?;
        if status.is_none() {
            self.child.kill().context("cannot kill the loader")?;
            self.child.wait().context("cannot wait for the loader")?;
        }
        let text = |handle: Option<thread::JoinHandle<Vec<u8>>>| {
            let bytes = handle.and_then(|handle| handle.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (stdout, stderr) = (text(self.stdout.take()), text(self.stderr.take()));
        match status {
            Some(status) => Ok(Run { status, stdout, stderr }),
            None => bail!("still running after {limit:?}; it was killed.\n{stdout}\n{stderr}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe to its end on a thread of its own, so that the writer never blocks.
fn collect(mut pipe: impl std::io::Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn output_and_status_come_back() {
        let run = Running::start(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        let run = run.finish(Duration::from_secs(60)).unwrap();
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(run.status.code(), Some(3));
    }

    #[test]
    fn what_runs_too_long_is_killed() {
        let run = Running::start(Command::new("sleep").arg("600")).unwrap();
        let error = run.finish(Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("still running"), "{error}");
    }
}
