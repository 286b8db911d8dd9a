//! From an exec to the entry point of a program: a process that was seized on the way.
//!
//! Seized in time, it stops at the exec, and then certainly at its entry point. Seized a moment later, it has begun; then the
//! breakpoint at its entry point may be in time, or never be met.

use std::{
    cell::Cell,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use super::{Standing, tracer};
use crate::{
    process::Process,
    sys::ptrace::{Resume, Stop, Tracee},
    units::Pid,
};

/// How long a process that was held takes to stop at its exec. One that was not must meet its breakpoint soon.
const HELD: Duration = Duration::from_micros(50);
/// How long a process that had begun may take to its entry point, until it is taken to be past it.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where a process came.
pub(super) enum Came {
    /// It stands at its entry point.
    ToEntry(Process, Tracee),
    /// It was past that, and is no longer traced.
    Past,
    /// It was not wanted there, and is no longer traced.
    Unwanted,
    /// It has ended.
    ToItsEnd {
        /// Whether it would have stopped at its entry point.
        is_certain: bool,
    },
}

/// A process on its way to its entry point.
struct Way {
    process: Process,
    breakpoint: Option<OwnedFd>,
}

impl Way {
    fn begin(tracee: &Tracee) -> io::Result<Self> {
        let (process, breakpoint) = tracer::begin(tracee)?;
        Ok(Self { process, breakpoint: Some(breakpoint) })
    }

    /// Takes the breakpoint away; whether the process may be left, as its signal is not on the way already: untraced, it would die of that.
    fn may_leave(&mut self) -> bool {
        drop(self.breakpoint.take());
        !signal_is_pending(&self.process, libc::SIGTRAP)
    }
}

/// Has a process run to the entry point of the program that it executes, unless `given_up`, or the program is not
/// `wanted` there.
pub(super) fn to_entry(
    tracee: Tracee,
    given_up: impl Fn() -> bool,
    wanted: impl Fn(Pid) -> bool,
) -> io::Result<Came> {
    let mut first = tracee.wait(Instant::now() + HELD)?;
    let is_unwanted = Cell::new(false);
    let begin = || {
        is_unwanted.set(!wanted(tracee.thread()));
        if is_unwanted.get() { None } else { Way::begin(&tracee).ok() }
    };
    let mut way = if first.is_none() { begin() } else { None };
    let mut since = Instant::now();
    let mut is_certain = false;
    let mut is_leaving = false;
    loop {
        let is_late = || !is_certain && since.elapsed() >= PATIENCE;
        let is_over = || !is_leaving && (way.is_none() || is_late() || given_up());
        let stop = if let Some(stop) = first.take() { Some(stop) } else { tracee.wait_long(is_over)? };
        let Some(stop) = stop else {
            is_leaving = true;
            match tracee.interrupt() {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                asked => asked?,
            }
            continue;
        };
        let signal = match stop {
            Stop::Ended => return Ok(Came::ToItsEnd { is_certain }),
            Stop::Exec => {
                // Whatever was set before went with the image.
                drop(way.take());
                way = begin();
                (is_certain, since) = (true, Instant::now());
                is_leaving |= way.is_none();
                0
            }
            Stop::Signal(libc::SIGTRAP) if way.is_some() && !tracee.signal_was_sent()? => {
                let Some(Way { process, breakpoint }) = way else { continue };
                drop(breakpoint);
                return Ok(Came::ToEntry(process, tracee));
            }
            Stop::Signal(signal) => signal,
            Stop::Group | Stop::Interrupted | Stop::SystemCall => 0,
        };
        if is_leaving && way.as_mut().is_none_or(Way::may_leave) {
            let came = if is_unwanted.get() { Came::Unwanted } else { Came::Past };
            tracee.detach(signal)?;
            return Ok(came);
        }
        let resumed = match stop {
            Stop::Group => tracee.stay_stopped(),
            _ => tracee.resume(Resume::Freely, signal),
        };
        match resumed {
            // It was killed; the next wait says so.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            resumed => resumed?,
        }
    }
}

/// Has a process stand at its entry point until `tell` has told of it and what comes of that is done; then it is let go.
pub(super) fn stand(process: Process, tracee: Tracee, tell: impl FnOnce(Standing) -> bool) -> io::Result<()> {
    match tracer::at_entry(process, tracee, tell) {
        Some(tracee) => tracee.detach(0),
        None => Ok(()),
    }
}

/// Whether a signal waits to be delivered to the main thread of a process. If that is not known, it does.
fn signal_is_pending(process: &Process, signal: libc::c_int) -> bool {
    use std::io::Read as _;
    let mut text = String::new();
    let read = process
        .open_entry("status", rustix::fs::OFlags::RDONLY)
        .and_then(|mut file| file.read_to_string(&mut text));
    let mask = text.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    read.is_err() || mask.is_none_or(|mask| mask & (1 << (signal - 1)) != 0)
}
