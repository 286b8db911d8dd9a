//! Stops threads in turn, until one of them is at a safe point.

use std::{
    collections::HashMap,
    io,
    time::{Duration, Instant},
};

use super::{
    InjectError, Limits, Planned,
    address_space::AddressSpace,
    arch,
    remote_call::{Borrowed, Saved},
    returns::{self, Waited},
    safe_point::{self, CodeRegions, SafePoint, undisturbed},
    seccomp,
    stage::Stage,
    symbols::Symbols,
    threads::{Candidate, Suits, Tried, Turns, Unsuitable, candidates},
};
use crate::{
    process::{Process, Program, status::Status},
    sys::ptrace::{Registers, Stop, Tracee},
    units::Pid,
};

/// How long a thread may take to stop. A thread stops at once, unless it waits uninterruptibly or for a
/// processor.
pub(super) const STOP_LIMIT: Duration = Duration::from_millis(500);
/// The pauses between attempts grow from the first to the last of these.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LAST_PAUSE: Duration = Duration::from_millis(1);
/// How many threads we try in a row before we list them again.
const TRIES_A_ROUND: usize = 8;
/// How long we wait for a thread in native code the first time.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// After this part of the time limit (a fourth), we also interrupt calls that then return `EINTR`.
const UNNOTICED_PART: u32 = 4;

/// Borrows a thread. Also returns the time when the thread was stopped.
pub(super) fn borrow<'p>(
    process: &'p Process,
    memory: &'p AddressSpace,
    symbols: &Symbols,
    planned: Planned<'_>,
    limits: &Limits,
) -> Result<(Borrowed<'p>, Instant), InjectError> {
    let started = Instant::now();
    let over = started + limits.safe_point;
    let mut tried = Tried::default();
    let mut pause = FIRST_PAUSE;
    let (mut turns, mut waits) = (Turns::default(), Waits::default());
    loop {
        let waited = started.elapsed();
        let code = CodeRegions { regions: process.regions()?, interpreters: planned.interpreters };
        let mut found = candidates(process, &code.regions, &mut tried);
        let only_noticed = found.iter().all(|candidate| candidate.suits == Suits::WaitsNoticed);
        let noticed = only_noticed || waited > limits.safe_point / UNNOTICED_PART;
        found.retain(|candidate| noticed || candidate.suits != Suits::WaitsNoticed);
        let mut in_native_code = Vec::new();
        for candidate in turns.next(found, TRIES_A_ROUND) {
            match attempt(process, memory, candidate, &code, symbols, planned.program, None)? {
                Ok(borrowed) => return Ok(borrowed),
                Err(unfit) => {
                    tried.count(unfit);
                    if candidate.suits == Suits::Runs && unfit.may_return() {
                        in_native_code.push(candidate);
                    }
                }
            }
        }
        if let Some((candidate, wait)) = waits.next(&in_native_code, over) {
            match attempt(process, memory, candidate, &code, symbols, planned.program, Some(wait))? {
                Ok(borrowed) => return Ok(borrowed),
                Err(unfit) => tried.count(unfit),
            }
        }
        if Instant::now() + pause > over {
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

/// Decides which thread in native code to wait for.
#[derive(Debug, Default)]
struct Waits {
    /// How often we waited for each thread.
    done: HashMap<Pid, u32>,
}

/// A wait until a thread returns to the interpreter.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// How often we waited for the thread before.
    turn: u32,
    until: Instant,
}

impl Waits {
    /// The threads take turns. Each time, we wait twice as long for a thread as the time before.
    fn next(&mut self, threads: &[Candidate], over: Instant) -> Option<(Candidate, Wait)> {
        let done = |candidate: &Candidate| self.done.get(&candidate.thread).copied().unwrap_or(0);
        let candidate = *threads.iter().min_by_key(|candidate| done(candidate))?;
        let turn = done(&candidate);
        self.done.insert(candidate.thread, turn.saturating_add(1));
        let longest = FIRST_WAIT.saturating_mul(1 << turn.min(16));
        Some((candidate, Wait { turn, until: over.min(Instant::now() + longest) }))
    }
}

type Attempt<'p> = Result<(Borrowed<'p>, Instant), Unsuitable>;

/// Stops a thread and borrows it. If the thread is not at a safe point, we may wait until it is.
fn attempt<'p>(
    process: &'p Process,
    memory: &'p AddressSpace,
    candidate: Candidate,
    code: &CodeRegions<'_>,
    symbols: &Symbols,
    program: &Program,
    wait: Option<Wait>,
) -> Result<Attempt<'p>, InjectError> {
    let thread = candidate.thread;
    let system = |what| move |source| super::system(process, what, source);
    seccomp::check_readable(process, thread)?;
    let (tracee, mut stopped) = match stop(process, thread)? {
        Ok(stopped) => stopped,
        Err(unfit) => return Ok(Err(unfit)),
    };
    let mut found = Look::at(process, &tracee).map_err(system("reading registers"))?;
    let mut point = found.judge(code);
    if let (Some(wait), Err(unfit)) = (wait, &point)
        && unfit.may_return()
        && found.takes_traps()
    {
        let (_, stack) = arch::position(&found.registers);
        let unusable = found.mask | found.handled;
        let waited = returns::wait(&tracee, stack, unusable, code, memory, wait.turn, wait.until);
        match waited.map_err(system("waiting for a thread"))? {
            Waited::Stopped(when) => stopped = when,
            Waited::Late(signal) => {
                tracee.detach(signal).map_err(system("detaching from a thread"))?;
                return Ok(Err(Unsuitable::NoReturn));
            }
            Waited::Group => return Err(InjectError::Stopped { pid: process.pid() }),
            Waited::Gone => return Ok(Err(Unsuitable::Gone)),
            Waited::Stuck => {
                wait_and_let_go(tracee);
                return Ok(Err(Unsuitable::Stuck));
            }
        }
        found = Look::at(process, &tracee).map_err(system("reading registers"))?;
        point = found.judge(code);
    }
    let point = match point {
        Ok(point) => point,
        Err(unfit) => {
            let_go(process, tracee, &found)?;
            return Ok(Err(unfit));
        }
    };
    let (_, stack) = arch::position(&found.registers);
    if memory.is_gone(stack) {
        let_go(process, tracee, &found)?;
        return Err(InjectError::Ended { pid: process.pid(), thread, stage: Stage::Borrow });
    }
    // While the thread is stopped, the process cannot execute another program.
    let permitted = process.check_program(program).map_err(InjectError::from);
    if let Err(error) = permitted.and_then(|()| seccomp::check(process, &tracee)) {
        let_go(process, tracee, &found)?;
        return Err(error);
    }
    let extended = tracee.extended_state().map_err(system("reading vector registers"))?;
    let saved = Saved { registers: point.registers, extended, mask: found.mask };
    let borrowed = Borrowed::new(process, tracee, saved, symbols.code, memory)?;
    Ok(Ok((borrowed, stopped)))
}

/// Stops a thread. Also returns the time when it stopped.
pub(super) fn stop(
    process: &Process,
    thread: Pid,
) -> Result<Result<(Tracee, Instant), Unsuitable>, InjectError> {
    let system = |what| move |source| super::system(process, what, source);
    let our_child = thread == process.pid() && is_our_child(process);
    let tracee = match Tracee::seize(thread, our_child) {
        Ok(tracee) => tracee,
        Err(error) => return refusal(process, error).map(Err),
    };
    let stopped = Instant::now();
    if tracee.interrupt().is_err() {
        return Ok(Err(Unsuitable::Gone));
    }
    match tracee.wait(stopped + STOP_LIMIT).map_err(system("waiting for a thread"))? {
        Some(Stop::Interrupted) => Ok(Ok((tracee, stopped))),
        Some(Stop::Group) => Err(InjectError::Stopped { pid: process.pid() }),
        Some(Stop::Signal(signal)) => {
            tracee.detach(signal).map_err(system("detaching from a thread"))?;
            Ok(Err(Unsuitable::Signal))
        }
        Some(Stop::SystemCall | Stop::Exec) => Ok(Err(Unsuitable::Signal)),
        Some(Stop::Ended) => Ok(Err(Unsuitable::Gone)),
        None => {
            wait_and_let_go(tracee);
            Ok(Err(Unsuitable::Stuck))
        }
    }
}

/// Lets a stopped thread go on as if we had not stopped it.
pub(super) fn let_go(process: &Process, tracee: Tracee, found: &Look) -> Result<(), InjectError> {
    let system = |what| move |source| super::system(process, what, source);
    let (mut registers, mut changed) = undisturbed(&found.registers);
    if arch::needs_restart_call(&registers) && !seccomp::allows_restart(process, &tracee) {
        // The kernel would continue a timed call by another system call, which the filter does not allow.
        arch::call_fails(&mut registers, libc::EINTR);
        changed = true;
    }
    if changed {
        tracee.set_registers(&registers).map_err(system("setting registers"))?;
    }
    tracee.detach(0).map_err(system("detaching from a thread"))
}

/// The state of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    registers: Registers,
    /// The signals that the thread blocks, one bit for each.
    mask: u64,
    /// The signals for which the process has handlers.
    handled: u64,
    /// The signals that the process ignores.
    ignored: u64,
}

impl Look {
    pub(super) fn at(process: &Process, tracee: &Tracee) -> io::Result<Self> {
        let (registers, mask) = (tracee.registers()?, tracee.signal_mask()?);
        let signals = process.status().map(|status| status.signals);
        let (handled, ignored) = signals.map_or((u64::MAX, u64::MAX), |known| (known.caught, known.ignored));
        Ok(Self { registers, mask, handled, ignored })
    }

    /// Whether a SIGTRAP from the kernel has no effect if we do not deliver it. If the thread blocks SIGTRAP
    /// or the process ignores it, the kernel forces the signal, which ends the process (kernel/signal.c,
    /// `force_sig_info_to_task`).
    fn takes_traps(&self) -> bool {
        (self.mask | self.ignored) & (1 << (libc::SIGTRAP - 1)) == 0
    }

    fn judge(&self, code: &CodeRegions<'_>) -> Result<SafePoint, Unsuitable> {
        safe_point::judge(&self.registers, code, self.mask & self.handled)
    }
}

/// Lets go a thread that did not stop in time. We cannot detach from the thread before it stops. Until our
/// tracing thread ends, the borrowed thread would stop at its next chance and stay stopped. So we wait once
/// more.
fn wait_and_let_go(tracee: Tracee) {
    if let Ok(Some(stop)) = tracee.wait(Instant::now() + STOP_LIMIT) {
        let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
        // Fails only if the thread has ended.
        let _ = tracee.detach(signal);
    }
}

/// What a refused `PTRACE_SEIZE` means.
fn refusal(process: &Process, error: io::Error) -> Result<Unsuitable, InjectError> {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(Unsuitable::Gone),
        // This thread did not stop in time before. We trace it until it stops.
        Some(libc::EPERM) if is_traced_by_us(process) => Ok(Unsuitable::Stuck),
        Some(libc::EPERM) => {
            super::preflight::check(process)?;
            // Either the thread has ended, or a security module forbids tracing.
            if process.is_alive() {
                Ok(Unsuitable::Gone)
            } else {
                Err(super::system(process, "tracing", error))
            }
        }
        _ => Err(super::system(process, "tracing a thread", error)),
    }
}

fn is_traced_by_us(process: &Process) -> bool {
    let tracer = process.tracer().ok().flatten();
    tracer.is_some_and(|tracer| std::path::Path::new(&format!("/proc/self/task/{tracer}")).exists())
}

fn is_our_child(process: &Process) -> bool {
    let own = Pid::own();
    process.status().is_ok_and(|status: Status| status.parent == Some(own))
}
