//! Waits until a thread returns from native code to the interpreter.
//!
//! A thread may spend its time in long calls of native code, such as hashing. Then we hardly ever find the
//! thread in the interpreter when we stop it at random moments. But its stack shows the addresses in the
//! interpreter to which it will return. We set hardware breakpoints there, which change no code. A breakpoint
//! sends the thread a signal, and because we trace the thread, the signal stops it. The program ignores this
//! signal by default: if we die meanwhile, the signal has no effect.
//!
//! Some words on the stack only look like return addresses. These do no harm: wherever the thread stops, we
//! check again whether it is at a safe point.

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

/// The number of hardware breakpoints. There are fewer if other programs use some.
const BREAKPOINTS: usize = 4;
/// How many bytes of the stack we search: native code may have large buffers there.
const SEARCHED_BYTES: u64 = 256 << 10;
/// How many bytes we read at a time: the return addresses are mostly near.
const PIECE_BYTES: usize = 8 << 10;
const WORD_BYTES: usize = size_of::<u64>();

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The thread stopped at this time, perhaps in the interpreter.
    Stopped(Instant),
    /// The thread did not come back in time, or its stack has no return address in the interpreter, or no
    /// breakpoint is available. The thread is stopped. The number is a signal to deliver, or 0.
    Late(i32),
    /// The thread is stopped together with its whole process.
    Group,
    /// The thread does not stop any more.
    Stuck,
    /// The thread has ended.
    Gone,
}

/// Lets a stopped thread run until it returns to the interpreter. `unusable` has one bit for each signal that
/// the thread blocks or that has a handler. `turn` is how often we have waited for this thread before: each
/// time we try other addresses.
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
    // We remove the breakpoints when the thread is stopped again. The kernel removes them if this tool dies.
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

/// The addresses in the interpreter to which the thread may return, the innermost first. There is one for
/// each breakpoint.
///
/// A function may have left return addresses in memory that later functions use as their buffers. So if the
/// innermost addresses led nowhere, we try the next ones, and after the last ones we begin again.
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
