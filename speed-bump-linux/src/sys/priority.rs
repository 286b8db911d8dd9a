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

/// The calling thread runs before all ordinary ones until this is dropped; then it has the scheduling that it
/// had before.
#[derive(Debug)]
pub struct Urgent {
    policy: libc::c_int,
    parameter: libc::sched_param,
    /// Scheduling is the thread's own.
    of_thread: std::marker::PhantomData<*const ()>,
}

impl Urgent {
    /// Lets the calling thread run before all ordinary ones.
    ///
    /// # Errors
    /// As [`urgent`].
    pub fn begin() -> io::Result<Self> {
        // SAFETY: 0 is the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        let mut parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 is the calling thread, and the parameter is valid for the call.
        if policy < 0 || unsafe { libc::sched_getparam(0, &raw mut parameter) } != 0 {
            return Err(io::Error::last_os_error());
        }
        urgent()?;
        Ok(Self { policy, parameter, of_thread: std::marker::PhantomData })
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // SAFETY: 0 is the calling thread, which this cannot leave, and the parameter is valid for the call.
        if unsafe { libc::sched_setscheduler(0, self.policy, &raw const self.parameter) } != 0 {
            tracing::warn!("cannot restore a thread's scheduling: {}", io::Error::last_os_error());
        }
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_thread_gets_back_the_scheduling_that_it_had() {
        // SAFETY: 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: as above, and the parameter is valid for the call.
        assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) }, 0);
        match Urgent::begin() {
            Ok(urgent) => {
                assert_eq!(policy(), libc::SCHED_FIFO);
                drop(urgent);
            }
            // Without CAP_SYS_NICE nothing changes.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
        assert_eq!(policy(), libc::SCHED_BATCH);
    }
}
