//! A command of the user that runs beside an experiment. It has its own process group, so it ends together
//! with the processes that it has started, and at the latest with this program.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::keeper;
use crate::sys::signals;

/// How long a command may clean up before it is killed.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long to wait for the end of a killed command.
const PATIENCE_WITH_KILLED: Duration = Duration::from_secs(3);
/// How often to poll whether a command has ended.
const WAITS: Duration = Duration::from_millis(5);

/// A running command. Dropping it ends the command.
#[derive(Debug)]
pub(super) struct ShellCommand {
    child: Child,
    status: Option<ExitStatus>,
}

impl ShellCommand {
    /// Starts a command in `/bin/sh`, with empty input.
    pub(super) fn start(command: &str, output: Stdio, errors: Stdio) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", keeper::BEGINS, "sh", command]).stdin(keeper::input()?);
        shell.stdout(output).stderr(errors).process_group(0);
        signals::let_have(&mut shell);
        Ok(Self { child: shell.spawn()?, status: None })
    }

    pub(super) fn take_output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(super) fn take_errors(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Whether the command itself has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.status.is_some() || self.pid().is_none_or(has_ended)
    }

    /// Ends the process group, and returns the exit status of the command itself.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let Some(pid) = self.pid() else { return self.child.wait() };
        let began = Instant::now();
        if !has_ended(pid) {
            // The command may have ended. No other process gets its id until we take its status.
            let _ = kill_process_group(pid, Signal::TERM);
        }
        while !has_ended(pid) && began.elapsed() < PATIENCE {
            thread::sleep(WAITS);
        }
        let _ = kill_process_group(pid, Signal::KILL);
        // A process that waits for a device only ends when the device answers.
        while !has_ended(pid) {
            if began.elapsed() > PATIENCE_WITH_KILLED {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it was killed, and does not end"));
            }
            thread::sleep(WAITS);
        }
        let status = self.child.wait()?;
        keeper::forget(pid);
        self.status = Some(status);
        Ok(status)
    }

    /// Waits for the end of the command, and ends it if it takes too long or is not wanted any more. Returns
    /// its status if it ended by itself.
    pub(super) fn end_within(
        &mut self,
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Option<ExitStatus>> {
        let began = Instant::now();
        while self.pid().is_some_and(|pid| !has_ended(pid)) {
            if began.elapsed() > patience || !is_wanted() {
                return self.end().map(|_| None);
            }
            thread::sleep(WAITS);
        }
        self.end().map(Some)
    }
}

impl Drop for ShellCommand {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("a command cannot be ended: {error}");
        }
    }
}

/// Whether a child has ended. Does not take its status.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Waits until a child has ended. Does not take its status.
pub(super) fn wait_for(pid: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), options), Err(rustix::io::Errno::INTR)) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::BufRead as _;

    use super::*;

    #[test]
    fn a_command_does_not_inherit_blocked_signals() {
        let blocked = thread::spawn(|| {
            signals::leave_to_others();
            let command = "exec grep SigBlk /proc/self/status";
            let mut shell = ShellCommand::start(command, Stdio::piped(), Stdio::null()).unwrap();
            io::read_to_string(shell.take_output().unwrap()).unwrap()
        });
        assert_eq!(blocked.join().unwrap(), "SigBlk:\t0000000000000000\n");
    }

    #[test]
    fn processes_of_a_command_end_with_it() {
        let mut shell =
            ShellCommand::start("sleep 1000 & echo $!; wait", Stdio::piped(), Stdio::null()).unwrap();
        let mut line = String::new();
        io::BufReader::new(shell.take_output().unwrap()).read_line(&mut line).unwrap();
        let pid = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        drop(shell);
        // The adopting process takes the orphan's status at some time.
        let began = Instant::now();
        let is_there = || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        while is_there().is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(began.elapsed() < Duration::from_secs(60), "it is still there");
            thread::sleep(WAITS);
        }
    }
}
