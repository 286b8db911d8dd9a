//! A signal handler in our own process. It does the same work as the helper's handler does for a delay of
//! zero.

use std::{io, mem::MaybeUninit};

/// The handler. It is installed until this value is dropped.
#[derive(Debug)]
pub struct OwnHandler {
    signal: libc::c_int,
    before: libc::sigaction,
}

impl OwnHandler {
    /// Installs the handler for a signal.
    ///
    /// # Errors
    /// `EINVAL` for an invalid signal number, or for a signal that the C library itself uses.
    pub fn install(signal: u32) -> io::Result<Self> {
        let signal = signal.cast_signed();
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a zeroed action is valid, and its set of signals is empty. The handler is
        // async-signal-safe.
        let result = unsafe {
            (*action.as_mut_ptr()).sa_sigaction = address();
            (*action.as_mut_ptr()).sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(signal, action.as_ptr(), before.as_mut_ptr())
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the memory was zeroed, and `sigaction` filled it.
        Ok(Self { signal, before: unsafe { before.assume_init() } })
    }

    /// The address of the handler in this process.
    pub fn address(&self) -> u64 {
        address() as u64
    }
}

impl Drop for OwnHandler {
    fn drop(&mut self) {
        // SAFETY: the earlier action is valid.
        unsafe { libc::sigaction(self.signal, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn address() -> usize {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    handler as usize
}

extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    for _ in 0..2 {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the call is async-signal-safe, and only writes the time.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_signal_that_is_handled_is_survived_and_then_as_before() {
        let handler = OwnHandler::install(51).unwrap();
        // SAFETY: the signal has a handler.
        assert_eq!(unsafe { libc::raise(51) }, 0);
        assert_ne!(handler.address(), 0);
        drop(handler);
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the call only queries.
        let now = unsafe {
            libc::sigaction(51, std::ptr::null(), now.as_mut_ptr());
            now.assume_init()
        };
        assert_eq!(now.sa_sigaction, libc::SIG_DFL);
        assert!(OwnHandler::install(4711).is_err());
    }
}
