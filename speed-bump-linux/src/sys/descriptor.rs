//! Finds the descriptors that we inherited, by their numbers.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
};

/// Duplicates an inherited descriptor. The descriptors that we opened ourselves close on exec (`O_CLOEXEC`),
/// so we do not mistake one of these for an inherited one.
///
/// # Errors
/// `EBADF` if no inherited descriptor has this number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory, and returns an error if the number is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: this call, too, touches no memory.
    let duplicate = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn what_was_inherited_is_duplicated_and_what_was_not_is_refused() {
        // Standard error is always open, and never closes on exec.
        let duplicate = inherited(2).unwrap();
        assert_ne!(duplicate.as_raw_fd(), 2);
        assert_eq!(inherited(duplicate.as_raw_fd()).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(inherited(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(inherited(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
