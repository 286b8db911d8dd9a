//! Passes signals on to the command if they are meant for the command.
//!
//! A terminal sends its signals also to the command, which is in our process group. We do not pass these on,
//! so that no signal comes twice. We do not hold SIGTSTP: a terminal stops us together with the command, and
//! continues us together with it.

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
/// The signals that end a command before it starts.
const FATAL: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// The signal mask that this tool had when it started. The command gets the same mask.
#[derive(Clone, Copy)]
pub struct Inherited(libc::sigset_t);

impl Inherited {
    /// Sets this mask in the calling thread. Makes one system call.
    pub(super) fn restore(self) {
        // SAFETY: `pthread_sigmask` filled in this mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Signals that we hold until we can pass them on.
pub struct HeldSignals {
    held: libc::sigset_t,
    inherited: Inherited,
}

impl HeldSignals {
    /// Holds the signals from now on, in the calling thread and in the threads that it starts. So the calling
    /// thread must be the only one.
    pub fn hold() -> Self {
        let mut held = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `sigemptyset` initialises one set, and `pthread_sigmask` fills in the other. Both pointers
        // are valid, and calls with valid signal numbers cannot fail.
        unsafe {
            libc::sigemptyset(held.as_mut_ptr());
            for signal in PASSED {
                libc::sigaddset(held.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr());
            Self { held: held.assume_init(), inherited: Inherited(before.assume_init()) }
        }
    }

    /// The mask with which the command must start.
    pub fn inherited(&self) -> Inherited {
        self.inherited
    }

    /// A held signal that would have ended this tool.
    pub fn fatal(&self) -> Option<i32> {
        let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the call fills in the set. If it fails, the set is zeroed.
        let pending = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            pending.assume_init()
        };
        // SAFETY: the set is initialised, and the signal numbers are valid.
        FATAL.into_iter().find(|signal| unsafe { libc::sigismember(&raw const pending, *signal) } == 1)
    }

    /// From now on, passes the signals on to a process. A separate thread does this.
    ///
    /// # Errors
    /// We could not start the thread.
    pub fn pass_to(self, process: OwnedFd) -> io::Result<()> {
        let pass = move || {
            while let Some((signal, is_terminals)) = self.next() {
                if is_terminals {
                    continue;
                }
                // This fails only if the process has ended.
                if let Some(signal) = Signal::from_named_raw(signal) {
                    let _ = pidfd_send_signal(process.as_fd(), signal);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(pass).map(|_| ())
    }

    /// Waits for the next signal. Also returns whether the signal came from a terminal.
    fn next(&self) -> Option<(i32, bool)> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        loop {
            // SAFETY: both pointers are valid for the call.
            let signal = unsafe { libc::sigwaitinfo(&raw const self.held, info.as_mut_ptr()) };
            if signal > 0 {
                // SAFETY: the struct was zeroed, and the call has filled it in.
                let code = unsafe { info.assume_init_ref() }.si_code;
                return Some((signal, code == libc::SI_KERNEL));
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
    }
}
