//! Follows a process from an exec to the entry point of its program. We seized the process on the way.
//!
//! If we seized the process in time, it stops at the exec, and then certainly at its entry point. If we
//! seized it a moment later, it has started. Then it may stop at its entry point, or may be past that point
//! already.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{StoppedProgram, approach::Approach, tracer};
use crate::{
    process::Process,
    sys::{
        ptrace::{Resume, Stop, Tracee},
        watchdog::Watchdog,
    },
    units::Pid,
};

/// How long we wait for a process that was held to stop at its exec. This time is short, because a process
/// that was not held needs its breakpoint soon.
const HELD: Duration = Duration::from_micros(50);
/// How long a process that had started may take to its entry point. After this time, we conclude that the
/// process is past that point.
const PATIENCE: Duration = Duration::from_millis(100);

/// The end of the way.
pub(super) enum Came {
    /// The process is stopped at its entry point.
    ToEntry(Process, Tracee),
    /// The process runs, and we no longer trace it: the process was past its entry point, or we could not
    /// stop it there.
    Past(String),
    /// The process runs, and we no longer trace it: it need not stop, or we gave up.
    Left,
    /// The process has ended.
    ToItsEnd {
        /// Whether the process would certainly have stopped at its entry point.
        is_certain: bool,
    },
}

/// The present goal.
enum Aim {
    /// The process shall reach the entry point. `is_certain` says whether it certainly will.
    Entry { approach: Approach, is_certain: bool, since: Instant },
    /// The process shall stop anywhere, so that we can detach. The approach is the former goal, if that was
    /// the entry point.
    Leave(Came, Option<Approach>),
}

impl Aim {
    fn at_entry(tracee: &Tracee, is_certain: bool, wanted: &impl Fn(Pid) -> bool) -> Self {
        if !wanted(tracee.thread()) {
            return Self::Leave(Came::Left, None);
        }
        match Approach::begin(tracee) {
            Ok(approach) => Self::Entry { approach, is_certain, since: Instant::now() },
            Err(error) => Self::Leave(Came::Past(error.to_string()), None),
        }
    }

    fn is_certain(&self) -> bool {
        matches!(self, Self::Entry { is_certain: true, .. } | Self::Leave(Came::Left, _))
    }

    fn leave(self, came: Came) -> Self {
        match self {
            Self::Entry { approach, .. } => Self::Leave(came, Some(approach)),
            Self::Leave(..) => self,
        }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Entry { is_certain: false, since, .. } if since.elapsed() >= PATIENCE)
    }
}

/// Lets a process run to the entry point of its program. Gives up when `given_up` returns true, or if the
/// program is not `wanted` there.
pub(super) fn to_entry(
    tracee: Tracee,
    given_up: impl Fn() -> bool,
    wanted: impl Fn(Pid) -> bool,
) -> io::Result<Came> {
    let mut first = tracee.wait(Instant::now() + HELD)?;
    let mut aim = match first {
        // The code below sets the goal for this exec.
        Some(Stop::Exec) => Aim::Leave(Came::Left, None),
        _ => Aim::at_entry(&tracee, false, &wanted),
    };
    let mut is_interrupted = false;
    loop {
        let is_over = || !is_interrupted && (matches!(aim, Aim::Leave(..)) || aim.is_late() || given_up());
        let stop = if let Some(stop) = first.take() { Some(stop) } else { tracee.wait_long(is_over)? };
        let Some(stop) = stop else {
            let late = || Came::Past("it had started before it could be stopped".to_owned());
            let came = if aim.is_late() { late() } else { Came::Left };
            aim = aim.leave(came);
            is_interrupted = true;
            match tracee.interrupt() {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                asked => asked?,
            }
            continue;
        };
        match stop {
            Stop::Ended => return Ok(Came::ToItsEnd { is_certain: aim.is_certain() }),
            // The former goal was for the former program.
            Stop::Exec => aim = Aim::at_entry(&tracee, true, &wanted),
            Stop::Signal(_) | Stop::Group | Stop::Interrupted | Stop::SystemCall => {}
        }
        let signal;
        (aim, signal) = match (aim, stop) {
            (Aim::Entry { approach, .. }, _) if approach.ends_with(stop, &tracee)? => {
                return Ok(Came::ToEntry(approach.arrive(), tracee));
            }
            (Aim::Leave(came, approach), _) => {
                let signal = match (approach, stop) {
                    (Some(approach), _) => approach.abandon(stop, &tracee)?,
                    (None, Stop::Signal(signal)) => signal,
                    (None, _) => 0,
                };
                tracee.detach(signal)?;
                return Ok(came);
            }
            (Aim::Entry { approach, is_certain, since }, Stop::Signal(signal)) => {
                let passed = approach.passes(signal, &tracee)?;
                (Aim::Entry { approach, is_certain, since }, passed)
            }
            (aim @ Aim::Entry { .. }, _) => (aim, 0),
        };
        let resumed = match stop {
            Stop::Group => tracee.stay_stopped(),
            _ => tracee.resume(Resume::Freely, signal),
        };
        match resumed {
            // Someone killed the process. The next wait returns its end.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            resumed => resumed?,
        }
    }
}

/// Keeps a process stopped at its entry point until `tell` has reported it, and the receiver is done with it.
/// Then detaches.
pub(super) fn stand(
    process: Process,
    tracee: Tracee,
    tell: impl FnOnce(StoppedProgram) -> bool,
) -> io::Result<()> {
    let _watchdog = Watchdog::start();
    match tracer::at_entry(process, tracee, tell) {
        Some(tracee) => tracee.detach(0),
        None => Ok(()),
    }
}
