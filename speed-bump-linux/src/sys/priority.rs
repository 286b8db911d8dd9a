//! Scheduling priority of the calling thread.

use std::io;

/// The lowest real-time priority: before all ordinary threads, after all other real-time ones.
const MIN: libc::c_int = 1;

/// Lets the calling thread, and those that it starts from here on, run before all ordinary ones.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or in a control group without real-time.
pub fn urgent() -> io::Result<()> {
    set(libc::SCHED_FIFO, MIN)
}

/// Lets the calling thread run like any other.
///
/// # Errors
/// None is known.
pub fn ordinary() -> io::Result<()> {
    set(libc::SCHED_OTHER, 0)
}

fn set(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: 0 is the calling thread, and the parameter is valid for the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
