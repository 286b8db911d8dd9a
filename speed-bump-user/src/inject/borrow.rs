//! Stops threads in turn until one stands at a safe point.

use std::{
    io,
    time::{Duration, Instant},
};

use rustix::fs::OFlags;

use super::{
    InjectError, Limits, arch,
    remote_call::{Borrowed, Saved},
    safe_point::{self, Ground},
    seccomp,
    symbols::Symbols,
    threads::{Candidate, Suits, Tried, Unfit, candidates},
};
use crate::{
    process::{Process, mapped_file::FileIdentity, status::Status},
    sys::ptrace::{Stop, Tracee},
};

/// How long a thread may take to stop: it does at once, unless it waits uninterruptibly, or for a processor.
const STOP_LIMIT: Duration = Duration::from_millis(500);
/// Pauses between tries, growing from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LAST_PAUSE: Duration = Duration::from_millis(1);
/// How many threads are tried in a row before the list is made anew.
const TRIES_A_ROUND: usize = 8;
/// From this part of the time on, threads are also taken out of calls that then return `EINTR`.
const UNNOTICED_PART: u32 = 4;

/// Borrows a thread, and says when it was stopped.
pub(super) fn borrow<'p>(
    process: &'p Process,
    symbols: &Symbols,
    interpreters: &[FileIdentity],
    limits: &Limits,
) -> Result<(Borrowed<'p>, Instant), InjectError> {
    let started = Instant::now();
    let mut tried = Tried::default();
    let mut pause = FIRST_PAUSE;
    loop {
        let waited = started.elapsed();
        let ground = Ground { regions: process.regions()?, interpreters };
        let found = candidates(process, &mut tried);
        let only_noticed = found.iter().all(|candidate| candidate.suits == Suits::WaitsNoticed);
        let noticed = only_noticed || waited > limits.safe_point / UNNOTICED_PART;
        let fit = found.into_iter().filter(|candidate| noticed || candidate.suits != Suits::WaitsNoticed);
        for candidate in fit.take(TRIES_A_ROUND) {
            match attempt(process, candidate, &ground, symbols)? {
                Ok(borrowed) => return Ok(borrowed),
                Err(unfit) => tried.count(unfit),
            }
        }
        if started.elapsed() + pause > limits.safe_point {
            return Err(InjectError::NoSafePoint {
                pid: process.pid(),
                limit: limits.safe_point.into(),
                tried,
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(LAST_PAUSE);
    }
}

type Attempt<'p> = Result<(Borrowed<'p>, Instant), Unfit>;

fn attempt<'p>(
    process: &'p Process,
    candidate: Candidate,
    ground: &Ground<'_>,
    symbols: &Symbols,
) -> Result<Attempt<'p>, InjectError> {
    let thread = candidate.thread;
    let system = |what| move |source| super::system(process, what, source);
    let memory = process.open_entry("mem", OFlags::RDWR).map_err(system("opening its memory"))?;
    let our_child = thread == process.pid() && is_our_child(process);
    let tracee = match Tracee::seize(thread, our_child) {
        Ok(tracee) => tracee,
        Err(error) => return refusal(process, error).map(Err),
    };
    let stopped = Instant::now();
    if tracee.interrupt().is_err() {
        return Ok(Err(Unfit::Gone));
    }
    match tracee.wait(stopped + STOP_LIMIT).map_err(system("waiting for a thread"))? {
        Some(Stop::Interrupted) => {}
        Some(Stop::Group) => return Err(InjectError::Stopped { pid: process.pid() }),
        Some(Stop::Signal(signal)) => {
            tracee.detach(signal).map_err(system("detaching from a thread"))?;
            return Ok(Err(Unfit::Signal));
        }
        Some(Stop::SystemCall | Stop::Exec) => return Ok(Err(Unfit::Signal)),
        Some(Stop::Ended) => return Ok(Err(Unfit::Gone)),
        None => {
            wait_and_let_go(tracee);
            return Ok(Err(Unfit::Stuck));
        }
    }
    let saved = (|| {
        let (registers, mask) = (tracee.registers()?, tracee.signal_mask()?);
        Ok((registers, mask, mask & handled(process)))
    })();
    let (registers, mask, in_handler) = saved.map_err(system("reading registers"))?;
    let point = match safe_point::judge(&registers, ground, in_handler) {
        Ok(point) => point,
        Err(unfit) => {
            tracee.detach(0).map_err(system("detaching from a thread"))?;
            return Ok(Err(unfit));
        }
    };
    if let Err(error) = seccomp::check(process, &tracee) {
        // The kernel would continue a timed call by another one, which the filter may not know.
        let mut registers = registers;
        if arch::needs_restart_call(&registers) {
            arch::call_fails(&mut registers, libc::EINTR);
            tracee.set_registers(&registers).map_err(system("setting registers"))?;
        }
        tracee.detach(0).map_err(system("detaching from a thread"))?;
        return Err(error);
    }
    let extended = tracee.extended_state().map_err(system("reading vector registers"))?;
    let saved = Saved { registers: point.registers, extended, mask };
    let borrowed = Borrowed::new(process, tracee, saved, symbols.code, memory)?;
    Ok(Ok((borrowed, stopped)))
}

/// A thread that does not stop cannot be detached from either. What is asked of it is forgotten when this thread
/// of ours ends; until then it would stop at its next chance and stand still, so it is looked at once more.
fn wait_and_let_go(tracee: Tracee) {
    if let Ok(Some(stop)) = tracee.wait(Instant::now() + STOP_LIMIT) {
        let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
        // Fails only if the thread has ended.
        let _ = tracee.detach(signal);
    }
}

/// What a refused `PTRACE_SEIZE` means.
fn refusal(process: &Process, error: io::Error) -> Result<Unfit, InjectError> {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(Unfit::Gone),
        // One that did not stop in time before: it still is ours until it does.
        Some(libc::EPERM) if is_traced_by_us(process) => Ok(Unfit::Stuck),
        Some(libc::EPERM) => {
            super::preflight::check(process)?;
            // The thread ended meanwhile, or a security module forbids it.
            if process.is_alive() { Ok(Unfit::Gone) } else { Err(super::system(process, "tracing", error)) }
        }
        _ => Err(super::system(process, "tracing a thread", error)),
    }
}

fn is_traced_by_us(process: &Process) -> bool {
    let tracer = process.tracer().ok().flatten();
    tracer.is_some_and(|tracer| std::path::Path::new(&format!("/proc/self/task/{tracer}")).exists())
}

fn is_our_child(process: &Process) -> bool {
    let own = crate::units::Pid::own();
    process.status().is_ok_and(|status: Status| status.parent == Some(own))
}

/// The signals that the process has handlers for, a bit each.
fn handled(process: &Process) -> u64 {
    let text = super::task_file(process, process.pid(), "status").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX)
}
