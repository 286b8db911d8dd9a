//! The load of a service: a command of the user (`--load`) that runs as long as the sweep does. A command
//! that ends with success, such as a load test of some seconds, is started again. A command that fails ends
//! the sweep.

use std::{
    io,
    process::Stdio,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    last_output::{LastOutput, last_lines},
    record::StartedLoad,
    shell::ShellCommand,
};
use crate::{sys::clock::now, units::Nanos};

/// How often to poll whether the command has ended.
const POLL: Duration = Duration::from_millis(10);
/// A command that ends earlier is no load.
const SHORTEST: Nanos = Nanos(1_000_000_000);
/// The most times that the command is started again.
const MAX_STARTS: usize = 1_000;

/// A command that makes the load. Dropping it ends the command, with all that it has started.
#[derive(Debug)]
pub(crate) struct LoadCommand {
    command: String,
    seen: LoadSeen,
    watcher: Option<JoinHandle<()>>,
}

/// What is known of the command. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadSeen(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    /// Whether the command is to end.
    ends: bool,
    started_again: Vec<Nanos>,
    failed: Option<String>,
}

/// A run of the command.
#[derive(Debug)]
struct Run {
    shell: ShellCommand,
    errors: LastOutput,
    start: Nanos,
}

impl Run {
    fn start(command: &str) -> io::Result<Self> {
        let mut shell = ShellCommand::start(command, Stdio::null(), Stdio::piped())?;
        let start = now();
        let errors = shell.take_errors().ok_or_else(|| io::Error::other("it has no standard error"))?;
        Ok(Self { shell, errors: LastOutput::read(errors)?, start })
    }

    /// Why it may not be started again, if it ended by itself.
    fn end(mut self, command: &str) -> Result<(), String> {
        let lasted = Nanos(now().0.saturating_sub(self.start.0));
        let status = self.shell.end().map_err(|error| format!("`{command}` does not end: {error}"))?;
        let said = last_lines(&String::from_utf8_lossy(&self.errors.take()));
        if !status.success() {
            return Err(format!("the load failed: `{command}` ended ({status}): {said}"));
        }
        if lasted < SHORTEST {
            return Err(format!(
                "the load is over: `{command}` ended with success after {} ms, and a load lasts for a second \
                 at least. A command that starts the load in the background has to wait for it (`wait`)",
                lasted.0 / 1_000_000
            ));
        }
        Ok(())
    }
}

impl LoadCommand {
    /// Starts the command. `act` is called if it fails.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(command: &str, act: impl Fn() + Send + 'static) -> io::Result<Self> {
        let seen = LoadSeen::default();
        let run = Run::start(command)?;
        let (watched, of) = (seen.clone(), command.to_owned());
        let watch = move || {
            if let Some(why) = watched.repeat(&of, run) {
                watched.state().failed = Some(why);
                act();
            }
        };
        let watcher = thread::Builder::new().name("load".to_owned()).spawn(watch)?;
        Ok(Self { command: command.to_owned(), seen, watcher: Some(watcher) })
    }

    /// What is known of the command.
    pub(crate) fn seen(&self) -> &LoadSeen {
        &self.seen
    }

    /// Why it failed, if it did.
    pub(crate) fn failed(&self) -> Option<String> {
        self.seen.state().failed.clone()
    }

    /// The load as a record has it.
    pub(crate) fn record(&self) -> StartedLoad {
        let started_again_ns = self.seen.state().started_again.clone();
        StartedLoad { command: self.command.clone(), started_again_ns }
    }
}

impl LoadSeen {
    /// When it was last started again.
    pub(crate) fn started_again(&self) -> Option<Nanos> {
        self.state().started_again.last().copied()
    }

    /// Starts the command again each time that it has ended with success. Returns why it cannot, or `None`
    /// when the command is to end.
    fn repeat(&self, command: &str, mut run: Run) -> Option<String> {
        loop {
            if self.is_to_end(&run) {
                return None;
            }
            if let Err(why) = run.end(command) {
                return Some(why);
            }
            if self.state().started_again.len() >= MAX_STARTS {
                return Some(format!("the load is over: `{command}` ended {} times", MAX_STARTS + 1));
            }
            run = match Run::start(command) {
                Ok(run) => run,
                Err(error) => return Some(format!("the load cannot be started again: `{command}`: {error}")),
            };
            self.state().started_again.push(run.start);
        }
    }

    /// Waits until a run has ended (`false`), or is to end.
    fn is_to_end(&self, run: &Run) -> bool {
        let mut state = self.state();
        while !state.ends && !run.shell.has_ended() {
            let waited = self.0.1.wait_timeout(state, POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.ends
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each field is consistent by itself.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LoadCommand {
    fn drop(&mut self) {
        self.seen.state().ends = true;
        self.seen.0.1.notify_all();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::channel;

    use super::*;

    /// Why a command fails.
    fn failure(command: &str) -> String {
        let (tell, told) = channel();
        let load = LoadCommand::start(command, move || tell.send(()).unwrap()).unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        load.failed().unwrap()
    }

    #[test]
    fn a_load_that_fails_is_told_with_what_it_said() {
        let why = failure("echo first >&2; printf 'no \\033[2Jhost' >&2; exit 3");
        let said = "ended (exit status: 3): first; no \\x1b[2Jhost";
        assert!(why.starts_with("the load failed: `echo first") && why.ends_with(said), "{why}");
    }

    #[test]
    fn a_command_that_leaves_at_once_is_no_load() {
        let why = failure("sleep 1000 & exit 0");
        assert!(why.contains("ended with success after ") && why.ends_with("wait for it (`wait`)"), "{why}");
    }

    #[test]
    fn a_load_that_ends_with_success_is_started_again() {
        let load = LoadCommand::start("sleep 1.05", || ()).unwrap();
        let begun = now();
        while load.record().started_again_ns.len() < 2 {
            assert!(load.failed().is_none() && now().0 - begun.0 < 60_000_000_000, "{load:?}");
            thread::sleep(POLL);
        }
        assert!(load.seen().started_again() > Some(begun), "{load:?}");
    }
}
