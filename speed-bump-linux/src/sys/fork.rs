//! Tries in a forked child what may crash.

use std::io;

/// Calls a function in a forked child. Returns whether the child survived.
///
/// # Errors
/// No child could be made or waited for.
pub fn survives(function: extern "C" fn()) -> io::Result<bool> {
    /// Ends a child that crashed. Because the signal has a handler, the kernel does not log the crash.
    extern "C" fn harmed(_: libc::c_int) {
        // SAFETY: async-signal-safe, and does not return.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: the child of a program with threads may do what a signal handler may: it sets signal handlers,
    // calls a function that the caller vouches for, and ends without cleaning up.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let handler: extern "C" fn(libc::c_int) = harmed;
            // SAFETY: as above; the handler has the signature that `signal` wants.
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
            // SAFETY: our own child, and a valid pointer.
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
        // SAFETY: ends the child as a crash would.
        unsafe { libc::raise(libc::SIGSEGV) };
    }

    #[test]
    fn a_crash_is_seen_and_does_no_harm_here() {
        assert!(survives(harmless).unwrap());
        assert!(!survives(deadly).unwrap());
    }
}
