//! Keeps signals that usually end a program from interrupting the calling thread.

use std::{mem::MaybeUninit, os::unix::process::CommandExt as _, process::Command};

/// Signals that the calling thread blocks until it drops this value.
#[derive(Debug)]
pub struct Blocked {
    before: libc::sigset_t,
    /// Each thread has a mask of its own, so this value must stay in its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT. Other threads of ours still get them.
    pub fn fatal() -> Self {
        Self::block(&set_of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]))
    }

    /// Blocks all signals that a thread can block.
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
        // SAFETY: both pointers are valid, and `pthread_sigmask` fills in what the second points to.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, set, before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, _not_send: std::marker::PhantomData }
    }
}

/// The signals that ask a program to end.
const ASK: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Leaves SIGINT, SIGTERM and SIGHUP to other threads: blocks these signals in the calling thread, and in the
/// threads that it starts from now on. If the main thread did not block a signal, the kernel would give it to
/// the main thread and to no other, even if the main thread waits for ever.
pub fn leave_to_others() {
    // SAFETY: the set is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(&ASK), std::ptr::null_mut()) };
}

/// Unblocks SIGINT, SIGTERM and SIGHUP in the calling thread.
pub fn take() {
    // SAFETY: the set is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set_of(&ASK), std::ptr::null_mut()) };
}

/// Unblocks SIGINT, SIGTERM and SIGHUP for a command. A command inherits the mask of the thread that starts
/// it, and many programs do not expect blocked signals.
pub fn let_have(command: &mut Command) {
    let unblock = || {
        take();
        Ok(())
    };
    // SAFETY: between fork and exec, `unblock` makes one system call, which a signal handler may also make.
    unsafe { command.pre_exec(unblock) };
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set, and the calls cannot fail for valid signal numbers.
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
        // SAFETY: `pthread_sigmask` returned this mask, in the same thread, because this value cannot leave
        // its thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
