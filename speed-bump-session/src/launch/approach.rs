//! A program on its way to its entry point, where it is to stop.
//!
//! A breakpoint of the processor has it get a signal there, which stops it, as it is traced. The signal is
//! one that programs ignore, and after an exec none has a handler yet: if the program is no longer traced
//! when the signal comes, as we were killed or let it go, the program ignores the signal.

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use super::entry;
use crate::{
    process::Process,
    sys::{
        breakpoint,
        ptrace::{Stop, Tracee},
        stray_trap,
    },
    units::VirtualAddress,
};

/// How long a signal may take that waits for a process which stands still.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A process between its exec and its entry point. Dropping this takes the breakpoint away.
#[derive(Debug)]
pub(super) struct Approach {
    process: Process,
    signal: i32,
    entry: VirtualAddress,
    breakpoint: OwnedFd,
}

impl Approach {
    /// Sees to it that the program that the process executes stops at its entry point.
    ///
    /// # Errors
    /// It cannot be made to; it has ended; it is not known where it begins.
    pub(super) fn begin(tracee: &Tracee) -> io::Result<Self> {
        let process = Process::open(tracee.thread()).map_err(io::Error::other)?;
        let blocked = process.status().map_err(io::Error::other)?.signals.blocked;
        let signal = breakpoint::harmless_signal(blocked).ok_or_else(|| {
            io::Error::other("it was started with all of the signals blocked that could stop it")
        })?;
        let entry = entry::of(&process)?;
        let set = breakpoint::announce_once(tracee.thread(), entry, signal);
        let breakpoint = set.map_err(|error| {
            io::Error::other(format!("no breakpoint of the processor can be set at its entry point: {error}"))
        })?;
        Ok(Self { process, signal, entry, breakpoint })
    }

    /// Whether this stop is the one at the entry point.
    ///
    /// # Errors
    /// It does not stand still any more.
    pub(super) fn ends_with(&self, stop: Stop, tracee: &Tracee) -> io::Result<bool> {
        Ok(stop == Stop::Signal(self.signal) && !tracee.signal_was_sent()?)
    }

    /// What to deliver of a signal on the way there.
    ///
    /// # Errors
    /// It does not stand still any more.
    pub(super) fn passes(&self, signal: i32, tracee: &Tracee) -> io::Result<i32> {
        stray_trap::to_deliver(signal, tracee, &[self.entry])
    }

    /// Gives up, where it stands still: what to deliver when it is let go.
    ///
    /// # Errors
    /// It does not stand still any more.
    pub(super) fn abandon(self, stop: Stop, tracee: &Tracee) -> io::Result<i32> {
        if let Stop::Signal(signal) = stop {
            return self.passes(signal, tracee);
        }
        drop(self.breakpoint);
        let settled = stray_trap::drop_pending(tracee, &[self.entry], Instant::now() + AT_ONCE)?;
        settled.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// It is there.
    pub(super) fn arrive(self) -> Process {
        self.process
    }
}
