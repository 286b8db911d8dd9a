//! Reads the time without entering the kernel.

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::host;

const CLOCK_MONOTONIC: c_int = 1;

/// The process's `clock_gettime`; POSIX lets signal handlers call it.
static CLOCK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Finds the process's clock. Returns whether there is one.
pub(crate) fn prepare() -> bool {
    let clock = host::symbol(c"clock_gettime");
    if let Some(clock) = clock {
        CLOCK.store(clock.as_ptr(), Ordering::Release);
    }
    clock.is_some()
}

/// Monotonic time. Without a clock, the end of time, at which every spin is over.
pub(crate) fn now_ns() -> u64 {
    type Clock = unsafe extern "C" fn(c_int, *mut [i64; 2]) -> c_int;
    let mut time = [0_i64; 2];
    // SAFETY: null, or `clock_gettime`, with its signature on 64-bit systems.
    let clock = unsafe { transmute::<*mut c_void, Option<Clock>>(CLOCK.load(Ordering::Relaxed)) };
    // SAFETY: as above; `time` is a `struct timespec`.
    match clock.map(|clock| unsafe { clock(CLOCK_MONOTONIC, &raw mut time) }) {
        Some(0) => time[0].cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time[1].cast_unsigned()),
        _ => u64::MAX,
    }
}
