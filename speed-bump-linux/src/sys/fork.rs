//! Tries something that may crash, in a forked child.

use std::io;

/// Calls a function in a forked child. Returns whether the child survived.
///
/// # Errors
/// We could not make a child, or could not wait for it.
pub fn survives(function: extern "C" fn()) -> io::Result<bool> {
    /// Ends a child that crashed. The kernel does not log the crash, because the signal has a handler.
    extern "C" fn harmed(_: libc::c_int) {
        // SAFETY: this call is async-signal-safe, and does not return.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: a program with several threads may do in a child only what it may do in a signal handler. This
    // child sets signal handlers, calls a function that the caller vouches for, and ends without cleaning up.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let handler: extern "C" fn(libc::c_int) = harmed;
            // SAFETY: the child may set handlers (see above), and the handler has the signature that `signal`
            // wants.
            unsafe {
                for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGTRAP, libc::SIGILL] {
                    libc::signal(signal, handler as libc::sighandler_t);
                }
                function();
                libc::_exit(0)
            }
        }
        child => {
            let mut status = 0;
            // SAFETY: this is our own child, and the pointer is valid.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    extern "C" fn harmless() {}

    extern "C" fn deadly() {
        // SAFETY: the call ends the child, like a crash.
        unsafe { libc::raise(libc::SIGSEGV) };
    }

    #[test]
    fn a_crash_is_seen_and_does_no_harm_here() {
        assert!(survives(harmless).unwrap());
        assert!(!survives(deadly).unwrap());
    }
}
