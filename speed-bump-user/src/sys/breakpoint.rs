//! A breakpoint of the processor in one thread, through `perf_event_open(2)`.
//!
//! It changes no code, and it is gone when its descriptor is closed, however that comes to pass: a thread that is
//! never traced again cannot run into it.

use std::{io, os::fd::OwnedFd};

use super::perf_event::open_event;
use crate::units::{Pid, VirtualAddress};

// include/uapi/linux/perf_event.h
const PERF_TYPE_BREAKPOINT: u32 = 5;
/// Flags of `perf_event_attr`, by the position of their bits.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const REMOVE_ON_EXEC: u64 = 1 << 36;
/// Linux 5.13.
const SIGTRAP: u64 = 1 << 37;
/// `HW_BREAKPOINT_X` (include/uapi/linux/hw_breakpoint.h).
const EXECUTE: u32 = 4;
/// What the kernel wants as length of a breakpoint on execution: `sizeof(long)`.
const LENGTH: u64 = size_of::<libc::c_long>() as u64;

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

/// Has the thread get SIGTRAP before it executes the instruction there, until the result is dropped.
///
/// # Errors
/// What `perf_event_open` returns: `ENOSPC` where all of the processor's breakpoints are taken, `EOPNOTSUPP` or
/// `EINVAL` where it has none or the kernel is older than 5.13, `EACCES` without `CAP_PERFMON`.
pub fn set(thread: Pid, address: VirtualAddress) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: PERF_TYPE_BREAKPOINT,
        size: size_of::<Attributes>() as u32,
        sample_period: 1,
        flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | REMOVE_ON_EXEC | SIGTRAP,
        bp_type: EXECUTE,
        bp_addr: address.0,
        bp_len: LENGTH,
        ..Attributes::default()
    };
    // SAFETY: the structure is as long as it says.
    unsafe { open_event(&raw const attributes, thread) }
}
