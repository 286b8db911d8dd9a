//! The scheduling priority of the calling thread.

use std::io;

/// The lowest real-time priority. A thread with this priority runs before all ordinary threads, and after all
/// other real-time threads.
const MIN: libc::c_int = 1;

/// Lets the calling thread run before all ordinary threads. The same is true for the threads that it starts
/// from now on.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or in a control group without real-time.
pub fn urgent() -> io::Result<()> {
    set(libc::SCHED_FIFO, MIN)
}

/// While this value lives, the calling thread runs before all ordinary threads. Dropping this value restores
/// the thread's earlier scheduling.
#[derive(Debug)]
pub struct Urgent {
    policy: libc::c_int,
    parameter: libc::sched_param,
    /// Only the thread itself can restore its scheduling, so this value must stay in the thread.
    of_thread: std::marker::PhantomData<*const ()>,
}

impl Urgent {
    /// Lets the calling thread run before all ordinary threads.
    ///
    /// # Errors
    /// See [`urgent`].
    pub fn begin() -> io::Result<Self> {
        // SAFETY: 0 means the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        let mut parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 means the calling thread, and the parameter is valid for the call.
        if policy < 0 || unsafe { libc::sched_getparam(0, &raw mut parameter) } != 0 {
            return Err(io::Error::last_os_error());
        }
        urgent()?;
        Ok(Self { policy, parameter, of_thread: std::marker::PhantomData })
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // SAFETY: 0 means the calling thread, which this value cannot leave. The parameter is valid for the
        // call.
        if unsafe { libc::sched_setscheduler(0, self.policy, &raw const self.parameter) } != 0 {
            tracing::warn!("cannot restore a thread's scheduling: {}", io::Error::last_os_error());
        }
    }
}

/// Lets the calling thread run like an ordinary thread.
///
/// # Errors
/// We know of none.
pub fn ordinary() -> io::Result<()> {
    set(libc::SCHED_OTHER, 0)
}

fn set(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: 0 means the calling thread, and the parameter is valid for the call.
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
        // SAFETY: 0 means the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 means the calling thread, and the parameter is valid for the call.
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
