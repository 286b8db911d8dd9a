//! Passes signals that are meant for the command on to it.
//!
//! A terminal sends its signals to the command as well, which is in our process group: we do not pass those
//! on, so that none comes twice. We do not hold SIGTSTP: we stop with the command, and are continued with it.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    thread,
};

use rustix::process::{Signal, pidfd_send_signal};

/// The signals that we pass on.
const PASSED: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGALRM,
];
/// The signals that end a command before it is started.
const FATAL: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The signal mask that we were started with; the command is started with it too.
#[derive(Clone, Copy)]
pub struct Inherited(libc::sigset_t);

impl Inherited {
    /// Sets the calling thread's mask to it. Makes one system call.
    pub(super) fn restore(self) {
        // SAFETY: a mask that `pthread_sigmask` gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Signals that are held until they can be passed on.
pub struct HeldSignals {
    held: libc::sigset_t,
    inherited: Inherited,
}

impl HeldSignals {
    /// Holds the signals from here on: in the calling thread, and in those that it starts. So it must be the
    /// only one.
    pub fn hold() -> Self {
        let mut held = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `sigemptyset` initialises the set, `pthread_sigmask` fills in the other; both are valid
        // pointers, and valid signal numbers cannot fail.
        unsafe {
            libc::sigemptyset(held.as_mut_ptr());
            for signal in PASSED {
                libc::sigaddset(held.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr());
            Self { held: held.assume_init(), inherited: Inherited(before.assume_init()) }
        }
    }

    /// The mask for starting the command.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// A held signal that would have ended us.
    pub fn fatal(&self) -> Option<i32> {
        let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a set for the call to fill in; it was zeroed, should that fail.
        let pending = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            pending.assume_init()
        };
        // SAFETY: a set that is initialised, and valid numbers.
        FATAL.into_iter().find(|signal| unsafe { libc::sigismember(&raw const pending, *signal) } == 1)
    }

    /// Passes them on to a process from here on, on a thread of its own.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn pass_to(self, process: OwnedFd) -> io::Result<()> {
        let pass = move || {
            while let Some((signal, is_terminals)) = self.next() {
                if is_terminals {
                    continue;
                }
                // Fails only if the process has ended.
                if let Some(signal) = Signal::from_named_raw(signal) {
                    let _ = pidfd_send_signal(process.as_fd(), signal);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(pass).map(|_| ())
    }

    /// Waits for the next one. Returns whether a terminal sent it, too.
    fn next(&self) -> Option<(i32, bool)> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        loop {
            // SAFETY: both are valid for the call.
            let signal = unsafe { libc::sigwaitinfo(&raw const self.held, info.as_mut_ptr()) };
            if signal > 0 {
                // SAFETY: zeroed, and filled in.
                let code = unsafe { info.assume_init_ref() }.si_code;
                return Some((signal, code == libc::SI_KERNEL));
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
    }
}
