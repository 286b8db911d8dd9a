//! The built loader, `speed-bump-ebpf`.

use std::{
    env,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal};

use crate::wait::{deadline, wait};

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

/// The loader as a binary of the tests' own package, which cargo builds whenever it builds one of its tests.
const TOOL: &str = "speed-bump-ebpf-under-test";

/// The loader that cargo built with the running test: never an older one.
///
/// `SPEED_BUMP_TOOL` names another one, as in virtual machines.
pub fn path() -> Result<PathBuf> {
    if let Some(path) = env::var_os("SPEED_BUMP_TOOL") {
        return Ok(path.into());
    }
    let here = env::current_exe().context("cannot read /proc/self/exe")?;
    // Tests lie in `deps`, one below the binaries.
    let found = here.ancestors().nth(2).map(|folder| folder.join(TOOL));
    found.filter(|path| path.is_file()).with_context(|| {
        format!(
            "no {TOOL} near {}: run the test by `cargo test`, or name the loader in SPEED_BUMP_TOOL",
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
    stdout: Option<Output>,
    stderr: Option<Output>,
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
        let stdout = child.stdout.take().map(Output::collect);
        let stderr = child.stderr.take().map(Output::collect);
        Ok(Self { child, stdout, stderr })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        // Not yet reaped, as only `finish` and `drop` reap: the PID is still its own.
        let pid = Pid::from_raw(self.pid()).context("a child has a positive PID")?;
        rustix::process::kill_process(pid, signal).with_context(|| format!("cannot send {signal:?}"))
    }

    /// Waits until it has written this to standard error. That it ends without, or does not within `limit`,
    /// is an error that shows what it wrote instead.
    pub fn wait_for_stderr(&self, text: &str, limit: Duration) -> Result<()> {
        let output = self.stderr.as_ref().context("its standard error is not collected")?;
        output.wait_for(text, limit)
    }

    /// What it has written to standard error by now.
    pub fn stderr(&self) -> String {
        self.stderr.as_ref().map(Output::text).unwrap_or_default()
    }

    /// Waits for its end and kills it after `limit`, which is an error that shows its output so far.
    pub fn finish(mut self, limit: Duration) -> Result<Run> {
        let status = wait(&mut self.child, limit)?;
        if status.is_none() {
            self.child.kill().context("cannot kill the loader")?;
            self.child.wait().context("cannot wait for the loader")?;
        }
        let text = |output: Option<Output>| output.map(Output::finish).unwrap_or_default();
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

/// What comes out of a pipe, read on a thread of its own so that the writer never blocks.
#[derive(Debug)]
struct Output {
    so_far: Arc<(Mutex<SoFar>, Condvar)>,
    reader: thread::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct SoFar {
    bytes: Vec<u8>,
    ended: bool,
}

impl SoFar {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Output {
    fn collect(mut pipe: impl std::io::Read + Send + 'static) -> Self {
        let so_far: Arc<(Mutex<SoFar>, Condvar)> = Arc::default();
        let shared = Arc::clone(&so_far);
        let reader = thread::spawn(move || {
            let mut part = [0; 4096];
            loop {
                let length = pipe.read(&mut part).unwrap_or(0);
                let mut so_far = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                so_far.bytes.extend_from_slice(&part[..length]);
                so_far.ended = length == 0;
                shared.1.notify_all();
                if so_far.ended {
                    return;
                }
            }
        });
        Self { so_far, reader }
    }

    fn text(&self) -> String {
        self.so_far.0.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    fn wait_for(&self, text: &str, limit: Duration) -> Result<()> {
        let deadline = deadline(limit);
        let mut so_far = self.so_far.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !so_far.text().contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            if so_far.ended || left.is_zero() {
                bail!("it did not write `{text}` but:\n{}", so_far.text());
            }
            let (guard, _) = self.so_far.1.wait_timeout(so_far, left).unwrap_or_else(PoisonError::into_inner);
            so_far = guard;
        }
        Ok(())
    }

    fn finish(self) -> String {
        // The reader ends when the pipe is closed. If it has panicked, the text that it read before is still
        // there.
        let _ = self.reader.join();
        self.so_far.0.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
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
    fn its_words_can_be_waited_for() {
        let limit = Duration::from_secs(60);
        let run =
            Running::start(Command::new("sh").args(["-c", "echo one >&2; echo two >&2; sleep 600"])).unwrap();
        run.wait_for_stderr("one\ntwo\n", limit).unwrap();
        let run = Running::start(Command::new("sh").args(["-c", "echo one >&2"])).unwrap();
        let error = run.wait_for_stderr("two", limit).unwrap_err();
        assert!(error.to_string().contains("one\n"), "{error}");
    }

    #[test]
    fn what_runs_too_long_is_killed() {
        let run = Running::start(Command::new("sleep").arg("600")).unwrap();
        let error = run.finish(Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("still running"), "{error}");
    }
}
