//! Keeps signals that usually end a program from interrupting the calling thread.

use std::{mem::MaybeUninit, os::unix::process::CommandExt as _, process::Command};

/// Signals that are blocked in the calling thread until this value is dropped, in the same thread.
#[derive(Debug)]
pub struct Blocked {
    before: libc::sigset_t,
    /// A mask belongs to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT. Other threads of ours still get them.
    pub fn fatal() -> Self {
        Self::block(&set_of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]))
    }

    /// Blocks all signals that can be blocked.
    pub fn all() -> Self {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigfillset` initialises the set.
        Self::block(&unsafe {
            libc::sigfillset(set.as_mut_ptr());
            set.assume_init()
        })
    }

    fn block(set: &libc::sigset_t) -> Self {
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: both are valid pointers, and `pthread_sigmask` fills in the second.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, set, before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, _not_send: std::marker::PhantomData }
    }
}

/// The signals that ask a program to end.
const ASK: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Leaves SIGINT, SIGTERM and SIGHUP to other threads: blocks them in the calling thread and in those that it
/// starts from here on. If the main thread does not block a signal, the kernel hands it to that thread and to
/// no other, even if it waits for ever.
pub fn leave_to_others() {
    // SAFETY: a set that is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(&ASK), std::ptr::null_mut()) };
}

/// Unblocks them in the calling thread.
pub fn take() {
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set_of(&ASK), std::ptr::null_mut()) };
}

/// Unblocks them for a command: a thread's mask is inherited, also by programs that do not expect that.
pub fn let_have(command: &mut Command) {
    let unblock = || {
        take();
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call, which a signal handler may make too.
    unsafe { command.pre_exec(unblock) };
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set, and valid signal numbers cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: a mask that `pthread_sigmask` returned; the thread is the same, as this value cannot leave
        // it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
