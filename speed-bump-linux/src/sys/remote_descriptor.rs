//! Duplicates descriptors of other processes. The duplicate has the rights of the original descriptor, and no
//! more.
//!
//! If we opened /proc/PID/fd/N, we would open the file anew, with our own rights.

use std::{io, os::fd::OwnedFd};

use rustix::{
    fd::{AsFd, BorrowedFd},
    io::Errno,
    process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use crate::units::Pid;

/// `PIDFD_THREAD` (Linux 6.9, include/uapi/linux/pidfd.h).
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
/// `KCMP_FILES` (include/uapi/linux/kcmp.h).
const KCMP_FILES: libc::c_int = 2;

/// The descriptors of a thread.
#[derive(Debug)]
pub struct Descriptors<'p> {
    /// The thread's pidfd, if the kernel has pidfds of threads; otherwise we use the process's pidfd.
    of_thread: Option<OwnedFd>,
    of_process: BorrowedFd<'p>,
}

impl<'p> Descriptors<'p> {
    /// The descriptors of a thread; `process` is the pidfd of the thread's process. Returns `None` if the
    /// thread has a table of its own that we cannot reach: kernels before Linux 6.9 do not let us.
    ///
    /// # Errors
    /// The error of `pidfd_open`.
    pub fn of_thread(process: BorrowedFd<'p>, pid: Pid, thread: Pid) -> io::Result<Option<Self>> {
        let own = |of_thread| Some(Self { of_thread, of_process: process });
        if thread == pid {
            return Ok(own(None));
        }
        let raw = rustix::process::Pid::from_raw(thread.get()).ok_or(Errno::SRCH)?;
        match pidfd_open(raw, PIDFD_THREAD) {
            Ok(pidfd) => Ok(own(Some(pidfd))),
            Err(Errno::INVAL) => Ok(if are_shared(pid, thread) { own(None) } else { None }),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Duplicates a descriptor (`pidfd_getfd(2)`, Linux 5.6). We need the right to trace the process.
    ///
    /// # Errors
    /// `EBADF` if no descriptor has this number, `EPERM` without the right, `ENOSYS` if an old seccomp filter
    /// does not know the call.
    pub fn take(&self, number: i32) -> io::Result<OwnedFd> {
        let pidfd = self.of_thread.as_ref().map_or(self.of_process, |pidfd| pidfd.as_fd());
        Ok(pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty())?)
    }
}

/// Whether two threads share one table of descriptors. Without kcmp(2) we assume that they do, because we
/// check every descriptor that we take.
fn are_shared(one: Pid, other: Pid) -> bool {
    // SAFETY: the call compares two pointers of the kernel, and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one.get(), other.get(), KCMP_FILES, 0, 0) };
    result <= 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs::File, io::Read as _, os::fd::AsRawFd as _, sync::mpsc};

    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_descriptor_keeps_its_rights() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let pid = Pid::own();
        let descriptors = Descriptors::of_thread(own.as_fd(), pid, pid).unwrap().unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        let mut taken = File::from(descriptors.take(file.as_raw_fd()).unwrap());
        taken.read_exact(&mut [0; 4]).unwrap();
        assert!(io::Write::write(&mut taken, b"x").is_err());
        assert_eq!(descriptors.take(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_thread_may_have_its_own() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let (told, hear) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: the call gives this thread a table of its own, which changes nothing for other threads.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            let (reader, mut writer) = io::pipe().unwrap();
            io::Write::write_all(&mut writer, b"only here").unwrap();
            told.send((rustix::thread::gettid(), reader.as_raw_fd())).unwrap();
            let _ = finished.recv();
        });
        let (id, number) = hear.recv().unwrap();
        let id = Pid::new(id.as_raw_nonzero().get()).unwrap();
        assert!(!are_shared(Pid::own(), id));
        match Descriptors::of_thread(own.as_fd(), Pid::own(), id).unwrap() {
            Some(descriptors) => {
                let mut text = [0; 9];
                File::from(descriptors.take(number).unwrap()).read_exact(&mut text).unwrap();
                assert_eq!(&text, b"only here");
            }
            // Kernels before Linux 6.9 refuse this.
            None => assert!(pidfd_open(getpid(), PIDFD_THREAD).is_err()),
        }
        drop(finish);
        thread.join().unwrap();
    }
}
