//! Waits until a thread returns from native code to the interpreter.
//!
//! Stopping at random moments hardly ever finds a thread in the interpreter if it spends its time in long
//! calls of native code, such as hashing. But its stack shows where in the interpreter it will return to. We
//! set hardware breakpoints there, which change no code; they send the thread a signal, which stops it, since
//! we trace it. The program ignores that signal: if we die meanwhile, it has no effect.
//!
//! Words on the stack that only look like return addresses do no harm: wherever the thread stops, it is
//! checked again, as any other.

use std::{io, time::Instant};

use super::{address_space::AddressSpace, arch, borrow::STOP_LIMIT, safe_point::CodeRegions};
use crate::{
    sys::{
        breakpoint,
        ptrace::{Resume, Stop, Tracee},
        stray_trap,
    },
    units::VirtualAddress,
};

/// Hardware breakpoints; fewer if other programs use some.
const BREAKPOINTS: usize = 4;
/// How much of the stack we search: native code may have large buffers there.
const SEARCHED_BYTES: u64 = 256 << 10;
/// How much we read at a time: the return addresses are mostly near.
const PIECE_BYTES: usize = 8 << 10;
const WORD_BYTES: usize = size_of::<u64>();

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// It stopped at this time, perhaps in the interpreter.
    Stopped(Instant),
    /// It did not come back in time, or its stack shows no place to come back to, or no breakpoint is
    /// available. It is stopped; a signal to deliver, or 0.
    Late(i32),
    /// It is stopped with its whole process.
    Group,
    /// It no longer stops.
    Stuck,
    /// It has ended.
    Gone,
}

/// Lets a stopped thread run until it comes back. `unusable`: signals that it blocks or that have a handler,
/// a bit each. `turn`: how often we tried this with it before; each time we try other places.
pub(super) fn wait(
    tracee: &Tracee,
    stack: VirtualAddress,
    unusable: u64,
    code: &CodeRegions<'_>,
    memory: &AddressSpace,
    turn: u32,
    deadline: Instant,
) -> io::Result<Waited> {
    let Some(signal) = breakpoint::harmless_signal(unusable) else { return Ok(Waited::Late(0)) };
    let places = places(stack, code, memory, turn);
    // Dropped when the thread is stopped again, and by our death.
    let set = |place: &VirtualAddress| breakpoint::announce_once(tracee.thread(), *place, signal).ok();
    let breakpoints: Vec<_> = places.iter().filter_map(set).collect();
    if breakpoints.is_empty() {
        return Ok(Waited::Late(0));
    }
    tracee.resume(Resume::Freely, 0)?;
    let deliver = |other| stray_trap::to_deliver(other, tracee, &places);
    let mut stop = loop {
        match tracee.wait(deadline)? {
            Some(Stop::Signal(other)) if other != signal => tracee.resume(Resume::Freely, deliver(other)?)?,
            Some(Stop::Interrupted | Stop::SystemCall | Stop::Exec) => tracee.resume(Resume::Freely, 0)?,
            stop => break stop,
        }
    };
    if stop.is_none() {
        if tracee.interrupt().is_err() {
            return Ok(Waited::Gone);
        }
        stop = tracee.wait(Instant::now() + STOP_LIMIT)?;
    }
    drop(breakpoints);
    let settled = || stray_trap::drop_pending(tracee, &places, Instant::now() + STOP_LIMIT);
    Ok(match stop {
        Some(Stop::Signal(stopped)) if stopped == signal => Waited::Stopped(Instant::now()),
        Some(Stop::Signal(other)) => Waited::Late(deliver(other)?),
        Some(Stop::Interrupted | Stop::SystemCall | Stop::Exec) => {
            settled()?.map_or(Waited::Stuck, Waited::Late)
        }
        Some(Stop::Group) => match settled()? {
            Some(0) => Waited::Group,
            Some(other) => Waited::Late(other),
            None => Waited::Stuck,
        },
        Some(Stop::Ended) => Waited::Gone,
        None => Waited::Stuck,
    })
}

/// Where the thread may return to in the interpreter, the innermost first: one place for each breakpoint.
///
/// Functions leave return addresses behind in memory that later ones use as their buffers. So if the
/// innermost places led nowhere, we try the next ones, and after the last the first again.
fn places(
    stack: VirtualAddress,
    code: &CodeRegions<'_>,
    memory: &AddressSpace,
    turn: u32,
) -> Vec<VirtualAddress> {
    let turn = turn as usize;
    let found = return_addresses(stack, code, memory, turn.saturating_add(1).saturating_mul(BREAKPOINTS));
    let groups = found.len().div_ceil(BREAKPOINTS).max(1);
    found.into_iter().skip(turn % groups * BREAKPOINTS).take(BREAKPOINTS).collect()
}

fn return_addresses(
    stack: VirtualAddress,
    code: &CodeRegions<'_>,
    memory: &AddressSpace,
    wanted: usize,
) -> Vec<VirtualAddress> {
    let mut found = Vec::new();
    let Some(region) = code.regions.iter().find(|region| region.contains(stack)) else { return found };
    let end = region.end.0.min(stack.0.saturating_add(SEARCHED_BYTES));
    let mut at = stack.0.next_multiple_of(WORD_BYTES as u64);
    while at < end {
        let length = PIECE_BYTES.min(usize::try_from(end - at).unwrap_or(0));
        let mut piece = vec![0; length];
        if memory.read(VirtualAddress(at), &mut piece).is_err() {
            break;
        }
        for word in piece.as_chunks::<WORD_BYTES>().0 {
            let address = VirtualAddress(u64::from_ne_bytes(*word));
            if code.is_interpreter(address) && !found.contains(&address) && is_return_address(address, memory)
            {
                found.push(address);
                if found.len() == wanted {
                    return found;
                }
            }
        }
        at += length as u64;
    }
    found
}

fn is_return_address(address: VirtualAddress, memory: &AddressSpace) -> bool {
    let mut before = [0; arch::LONGEST_CALL];
    let start = VirtualAddress(address.0.saturating_sub(before.len() as u64));
    memory.read(start, &mut before).is_ok() && arch::is_behind_call(&before)
}
