//! A hardware breakpoint in one thread, through `perf_event_open(2)`.
//!
//! The breakpoint changes no code. When its descriptor is closed, for whatever reason, the kernel removes the
//! breakpoint. So a thread that we no longer trace cannot run into it.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use super::perf_event::open_event;
use crate::units::{Pid, VirtualAddress};

// From include/uapi/linux/perf_event.h.
const PERF_TYPE_BREAKPOINT: u32 = 5;
/// From include/uapi/asm-generic/fcntl.h.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;
/// `PERF_EVENT_IOC_REFRESH`: enables an event for a given number of overflows.
const REFRESH: libc::c_ulong = 0x2402;
/// Flags of `perf_event_attr`, by the position of their bits.
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const REMOVE_ON_EXEC: u64 = 1 << 36;
/// `HW_BREAKPOINT_X` (include/uapi/linux/hw_breakpoint.h).
const EXECUTE: u32 = 4;
/// The length that the kernel requires for a breakpoint on execution: `sizeof(long)`.
const LENGTH: u64 = size_of::<libc::c_long>() as u64;

/// Signals that do nothing to a program that does not handle them.
const HARMLESS: [i32; 3] = [libc::SIGURG, libc::SIGWINCH, libc::SIGCHLD];

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    id: libc::pid_t,
}

/// `perf_event_attr` up to PERF_ATTR_SIZE_VER1.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
}

/// Why we cannot set a hardware breakpoint.
#[derive(Debug, thiserror::Error)]
pub enum BreakpointError {
    /// The processor has only a few breakpoints for each thread, and other programs use them all.
    #[error("others (debuggers, `perf record -e mem:`) have taken all of them: end those")]
    Taken,
    /// The machine has no hardware breakpoints.
    #[error("this machine has none: in a virtual machine, enable debug registers")]
    Absent,
    /// We lack the permission.
    #[error(
        "perf_event_open(2) is refused to us ({0}): grant the program CAP_PERFMON; where it has that, allow \
         the call in the seccomp filter that it runs under"
    )]
    Forbidden(io::Error),
    /// Another error.
    #[error("perf_event_open(2) failed: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for BreakpointError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EBUSY) => Self::Taken,
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT | libc::ENODEV) => Self::Absent,
            Some(libc::EACCES | libc::EPERM) => Self::Forbidden(error),
            _ => Self::Failed(error),
        }
    }
}

/// A signal that does nothing to a thread which is not traced. `unusable` has one bit for each signal that
/// the thread blocks or handles.
pub fn harmless_signal(unusable: u64) -> Option<i32> {
    HARMLESS.into_iter().find(|signal| unusable & (1 << (signal - 1)) == 0)
}

/// Sends the thread a signal, once, when the thread is about to execute the instruction at `address`. If the
/// caller drops the result before then, no signal is sent.
///
/// The signal should be a [harmless](harmless_signal) one, so that it does nothing if the tracer dies at that
/// moment. An interrupt delivers the signal at the instruction or shortly after.
///
/// # Errors
/// No breakpoint is available, or we may not send signals to the thread.
pub fn announce_once(thread: Pid, address: VirtualAddress, signal: i32) -> Result<OwnedFd, BreakpointError> {
    let event = open(thread, address)?;
    let fd = event.as_raw_fd();
    let owner = Owner { kind: F_OWNER_TID, id: thread.get() };
    // We set the signal before the receiver: until then the signal would be SIGIO, which ends programs.
    // SAFETY: the call takes a number.
    check(unsafe { libc::fcntl(fd, F_SETSIG, signal) })?;
    // SAFETY: the call reads a `struct f_owner_ex`, and `owner` is laid out like one.
    check(unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) })?;
    // SAFETY: the call takes a number.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC) })?;
    // SAFETY: the call takes a number.
    check(unsafe { libc::ioctl(fd, REFRESH, 1) })?;
    Ok(event)
}

/// Tries to open a breakpoint in our first thread. We never enable it.
///
/// # Errors
/// See [`announce_once`].
pub fn try_one() -> Result<(), BreakpointError> {
    Ok(open(Pid::own(), VirtualAddress(0)).map(drop)?)
}

fn open(thread: Pid, address: VirtualAddress) -> io::Result<OwnedFd> {
    let flags = DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    match open_with(thread, address, flags | REMOVE_ON_EXEC) {
        // On kernels before Linux 5.13 the breakpoint stays after an exec. Then the new program gets the
        // signal at that address, although it no longer has a handler for the signal.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open_with(thread, address, flags),
        opened => opened,
    }
}

fn open_with(thread: Pid, address: VirtualAddress, flags: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: PERF_TYPE_BREAKPOINT,
        size: size_of::<Attributes>() as u32,
        sample_period: 1,
        flags,
        bp_type: EXECUTE,
        bp_addr: address.0,
        bp_len: LENGTH,
        ..Attributes::default()
    };
    // SAFETY: the structure is as long as its `size` says.
    unsafe { open_event(&raw const attributes, thread) }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_names_its_cause() {
        let told = |errno| BreakpointError::from(io::Error::from_raw_os_error(errno)).to_string();
        for (errno, word) in [
            (libc::ENOSPC, "debuggers"),
            (libc::EOPNOTSUPP, "virtual machine"),
            (libc::EPERM, "CAP_PERFMON"),
            (libc::EACCES, "seccomp filter"),
            (libc::EMFILE, "perf_event_open(2) failed"),
        ] {
            let text = told(errno);
            assert!(text.contains(word), "{text}");
            assert_eq!(text.contains("debuggers"), errno == libc::ENOSPC, "{text}");
        }
    }
}
