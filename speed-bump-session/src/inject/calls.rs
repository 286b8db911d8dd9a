//! The system calls in which we may borrow a thread, and how each continues afterwards.
//!
//! This list has only calls that wait for something outside of the process. A thread that waits in the middle
//! of `malloc` or of the dynamic loader holds a lock that the helper needs.

/// How an interrupted call continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Continuation {
    /// The kernel continues the call, with the time that was left.
    Kernel,
    /// The kernel returns `EINTR`, as after SIGSTOP and SIGCONT (signal(7), "Interruption of system calls ...
    /// by stop signals"). If the call has no time limit, we make the thread repeat the call. If it has one,
    /// the program sees `EINTR`.
    Eintr {
        /// The argument with the time limit, if the call has such an argument.
        limit: Option<Limit>,
    },
    /// If the socket has a time limit (SO_RCVTIMEO, SO_SNDTIMEO), the kernel returns `EINTR`. Otherwise it
    /// continues the call.
    Socket,
}

/// An argument with a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Limit {
    /// An argument in milliseconds. Negative: no limit.
    Milliseconds(usize),
    /// A pointer to the limit. Null means no limit.
    Pointer(usize),
}

impl Limit {
    /// Whether these arguments set no time limit.
    pub(super) fn is_absent(self, arguments: [u64; 6]) -> bool {
        let argument = |position: usize| arguments.get(position).copied().unwrap_or(1);
        match self {
            // The kernel reads this argument as an int.
            Self::Milliseconds(position) => (argument(position) as u32).cast_signed() < 0,
            Self::Pointer(position) => argument(position) == 0,
        }
    }
}

/// FUTEX_WAIT_BITSET and FUTEX_WAIT_REQUEUE_PI (include/uapi/linux/futex.h). Condition variables, semaphores
/// and timed locks use these. glibc's internal locks, including malloc's, use plain FUTEX_WAIT.
const FUTEX_OPERATIONS: [u64; 2] = [9, 11];
/// Removes FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
const FUTEX_OPERATION_MASK: u64 = 0x7f;

/// How a call continues; `None` if we must not borrow a thread in this call.
pub(super) fn continuation(number: u64, arguments: [u64; 6]) -> Option<Continuation> {
    use Continuation::{Eintr, Kernel, Socket};
    let number = libc::c_long::try_from(number).ok()?;
    Some(match number {
        libc::SYS_futex => {
            let [_, operation, ..] = arguments;
            return FUTEX_OPERATIONS.contains(&(operation & FUTEX_OPERATION_MASK)).then_some(Kernel);
        }
        libc::SYS_restart_syscall
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_ppoll
        | libc::SYS_pselect6
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_rt_sigsuspend
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd
        | libc::SYS_flock
        | libc::SYS_fcntl
        | libc::SYS_openat
        | libc::SYS_splice
        | libc::SYS_mq_timedreceive
        | libc::SYS_mq_timedsend => Kernel,
        // These calls work on pipes, terminals, sockets, event and timer descriptors.
        libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev => Socket,
        libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg => Socket,
        libc::SYS_epoll_pwait => Eintr { limit: Some(Limit::Milliseconds(3)) },
        libc::SYS_epoll_pwait2 => Eintr { limit: Some(Limit::Pointer(3)) },
        libc::SYS_rt_sigtimedwait => Eintr { limit: Some(Limit::Pointer(2)) },
        libc::SYS_semop => Eintr { limit: None },
        libc::SYS_semtimedop => Eintr { limit: Some(Limit::Pointer(3)) },
        libc::SYS_io_getevents => Eintr { limit: Some(Limit::Pointer(4)) },
        number => return legacy(number),
    })
}

/// Calls that newer architectures lack.
#[cfg(target_arch = "x86_64")]
fn legacy(number: libc::c_long) -> Option<Continuation> {
    Some(match number {
        libc::SYS_poll | libc::SYS_select | libc::SYS_pause | libc::SYS_open => Continuation::Kernel,
        libc::SYS_epoll_wait => Continuation::Eintr { limit: Some(Limit::Milliseconds(3)) },
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn legacy(_number: libc::c_long) -> Option<Continuation> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_for_the_outside_count() {
        let futex = |operation| continuation(libc::SYS_futex as u64, [0x1000, operation, 0, 0, 0, 0]);
        assert_eq!(futex(9 | 128 | 256), Some(Continuation::Kernel));
        assert_eq!(futex(11), Some(Continuation::Kernel));
        assert_eq!(futex(0), None, "a lock");
        assert_eq!(futex(128), None, "a private lock");
        for call in [libc::SYS_mmap, libc::SYS_gettid, libc::SYS_pread64, libc::SYS_exit_group] {
            assert_eq!(continuation(call as u64, [0; 6]), None);
        }
        assert_eq!(continuation(u64::MAX, [0; 6]), None);
    }

    #[test]
    fn limits_of_time_are_read_as_the_kernel_reads_them() {
        let forever = u64::from(u32::MAX);
        assert!(Limit::Milliseconds(3).is_absent([0, 0, 0, forever, 0, 0]));
        assert!(!Limit::Milliseconds(3).is_absent([0, 0, 0, 5, 0, 0]));
        assert!(Limit::Pointer(0).is_absent([0; 6]));
        assert!(!Limit::Pointer(1).is_absent([0, 0x7f00, 0, 0, 0, 0]));
    }
}
