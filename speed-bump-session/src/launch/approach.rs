//! A program on its way to its entry point, where we want it to stop.
//!
//! At the entry point, a hardware breakpoint sends the program a signal. Because we trace the program, the
//! signal stops it. Programs ignore this signal by default, and just after an exec a program has no handler
//! yet. We may have been killed, or may have detached, before the signal comes. Then the program ignores the
//! signal.

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

/// How long we wait for a signal that is pending for a stopped process.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A process between its exec and its entry point. Dropping this value removes the breakpoint.
#[derive(Debug)]
pub(super) struct Approach {
    process: Process,
    signal: i32,
    entry: VirtualAddress,
    breakpoint: OwnedFd,
}

impl Approach {
    /// Makes the program that the process executes stop at its entry point.
    ///
    /// # Errors
    /// We cannot make the program stop, it has ended, or we do not know its entry point.
    pub(super) fn begin(tracee: &Tracee) -> io::Result<Self> {
        let process = Process::open(tracee.thread()).map_err(io::Error::other)?;
        let blocked = process.status().map_err(io::Error::other)?.signals.blocked;
        let signal = breakpoint::harmless_signal(blocked).ok_or_else(|| {
            io::Error::other("it was started with all of the signals blocked that could stop it")
        })?;
        let entry = entry::read(&process)?;
        let set = breakpoint::announce_once(tracee.thread(), entry, signal);
        let breakpoint = set.map_err(|error| {
            io::Error::other(format!("no breakpoint of the processor can be set at its entry point: {error}"))
        })?;
        Ok(Self { process, signal, entry, breakpoint })
    }

    /// Whether this is the stop at the entry point.
    ///
    /// # Errors
    /// The process is not stopped.
    pub(super) fn ends_with(&self, stop: Stop, tracee: &Tracee) -> io::Result<bool> {
        Ok(stop == Stop::Signal(self.signal) && !tracee.signal_was_sent()?)
    }

    /// The signal to deliver on the way to the entry point, or 0.
    ///
    /// # Errors
    /// The process is not stopped.
    pub(super) fn passes(&self, signal: i32, tracee: &Tracee) -> io::Result<i32> {
        stray_trap::to_deliver(signal, tracee, &[self.entry])
    }

    /// Gives up on a stopped program. Returns the signal to deliver when we detach.
    ///
    /// # Errors
    /// The process is not stopped.
    pub(super) fn abandon(self, stop: Stop, tracee: &Tracee) -> io::Result<i32> {
        if let Stop::Signal(signal) = stop {
            return self.passes(signal, tracee);
        }
        drop(self.breakpoint);
        let settled = stray_trap::drop_pending(tracee, &[self.entry], Instant::now() + AT_ONCE)?;
        settled.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Ends the approach, because the program is at its entry point.
    pub(super) fn arrive(self) -> Process {
        self.process
    }
}
