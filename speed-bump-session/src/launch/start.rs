//! Starts the command as our child.

use std::{
    ffi::OsString,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, ExitStatus},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{PidfdFlags, pidfd_open},
};
use tokio::sync::mpsc::unbounded_channel;

use super::{
    CommandEvents, DetachRequest,
    signals::Inherited,
    tracer::{self, Gate},
    user::User,
};
use crate::units::Pid;

/// Why we did not start a command.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program does not exist.
    #[error("cannot start {program}: it is not found; name a program in PATH, or a path to one")]
    NotFound {
        /// The name of the program.
        program: String,
    },
    /// We cannot execute the program.
    #[error("cannot start {program}: {source}")]
    NotExecutable {
        /// The name of the program.
        program: String,
        /// The system's error.
        r#source: io::Error,
    },
    /// The operating system lacks a resource.
    #[error("cannot prepare to start a command: {0}")]
    System(io::Error),
}

/// A started command.
#[derive(Debug)]
pub struct Launch {
    child: Child,
    pid: Pid,
    detach: DetachRequest,
}

impl Launch {
    /// Starts a command with our own standard streams, and with the signal mask that this tool had when it
    /// started. The command executes its program as soon as we trace it.
    ///
    /// # Errors
    /// We could not execute the program. No process is left.
    pub fn start(
        command: &[OsString],
        user: Option<&User>,
        inherited: Inherited,
    ) -> Result<(Self, CommandEvents), LaunchError> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(LaunchError::NotFound { program: "nothing".to_owned() });
        };
        let (pid, say_pid) = io::pipe().map_err(LaunchError::System)?;
        let (wait, go) = io::pipe().map_err(LaunchError::System)?;
        let parents_end = go.as_raw_fd();
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(user) = user {
            user.adjust_environment(&mut command);
        }
        let user = user.cloned();
        let prepare = move || {
            inherited.restore();
            if let Some(user) = &user {
                user.become_it()?;
            }
            come_to_the_gate(&say_pid, &wait, parents_end)
        };
        // SAFETY: the function only makes system calls, with memory that we allocated before the fork.
        unsafe { command.pre_exec(prepare) };
        let (told, command_events) = unbounded_channel();
        let gate = Gate { pid, go };
        let detach = DetachRequest::default();
        let held = detach.clone();
        let trace = move || tracer::follow(gate, &told, &held);
        thread::Builder::new().name("tracer".to_owned()).spawn(trace).map_err(LaunchError::System)?;
        let spawned = command.spawn();
        // Closes our ends of the pipes, so that the tracer does not wait for a child that never started.
        drop(command);
        let program = || program.to_string_lossy().into_owned();
        let child = spawned.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => LaunchError::NotFound { program: program() },
            _ => LaunchError::NotExecutable { program: program(), source },
        })?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::new);
        let pid = pid.ok_or_else(|| LaunchError::System(io::ErrorKind::InvalidData.into()))?;
        Ok((Self { child, pid, detach }, command_events))
    }

    /// The PID of the command.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A handle with which other threads can ask the tracer to detach.
    pub fn detach(&self) -> DetachRequest {
        self.detach.clone()
    }

    /// Asks the tracer to detach, and waits until the command has ended.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.detach.request();
        // While one of our threads traces the command, `waitpid` would also return the command's stops, and
        // take them away from that thread. So we first wait for the end with a pidfd.
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.get()) {
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            let mut ends = [PollFd::new(&pidfd, PollFlags::IN)];
            while matches!(poll(&mut ends, None), Err(Errno::INTR)) {}
        }
        self.child.wait()
    }
}

/// Runs in the child: sends the child's PID, and waits until we trace the child. If the child's parent ends
/// meanwhile, the child ends too.
fn come_to_the_gate(mut say_pid: &PipeWriter, mut wait: &PipeReader, parents_end: RawFd) -> io::Result<()> {
    say_pid.write_all(&rustix::process::getpid().as_raw_nonzero().get().to_ne_bytes())?;
    // SAFETY: this descriptor is the child's copy. The descriptor's owner is a thread of the parent, which
    // does not exist here, so nothing uses the descriptor later. The child must close it: while the
    // descriptor is open, the child would not notice that its parent has ended.
    unsafe { libc::close(parents_end) };
    wait.read_exact(&mut [0])
}
