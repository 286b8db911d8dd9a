//! A watchdog that continues this process if someone stops it at a bad moment.
//!
//! While our process is stopped, a thread that we trace stays stopped, too. We cannot block SIGSTOP, and
//! Ctrl-Z stops all processes of a group. So a child in a group of its own checks whether our process is
//! stopped, and continues it. When the work is done, we stop our process, because the user wanted that.
//!
//! We do not notice if someone else continues our process in between. Then we stop it once more than
//! necessary.

use std::{
    fs::File,
    io::{self, PipeReader, Read as _},
    os::fd::{AsRawFd as _, RawFd},
};

use rustix::process::{Signal, getpid, kill_process};

use super::signals::Blocked;

/// Time between two checks, in ns. This is how much longer than necessary a traced thread may be stopped.
const LOOK_EVERY: libc::c_long = 500_000;

/// The watchdog runs until this value is dropped. The thread that started it must not end before.
#[derive(Debug)]
pub struct Watchdog {
    child: libc::pid_t,
    /// The child writes a byte here each time it has continued our process.
    continued: PipeReader,
}

impl Watchdog {
    /// Starts to watch this process. Returns `None` if the system does not allow the child: then a stopped
    /// process stays stopped.
    pub fn start() -> Option<Self> {
        let started = Self::try_start();
        started
            .inspect_err(|error| {
                tracing::debug!("cannot start the watchdog for stops of this process: {error}")
            })
            .ok()
    }

    fn try_start() -> io::Result<Self> {
        let (continued, tell) = io::pipe()?;
        rustix::io::ioctl_fionbio(&continued, true)?;
        rustix::io::ioctl_fionbio(&tell, true)?;
        let own_state = File::open("/proc/thread-self/stat")?;
        let own = std::process::id().cast_signed();
        // The child inherits the blocked signals, so Ctrl-Z does not stop the child before it has left our
        // process group.
        let _quiet = Blocked::all();
        // Registers are 64 bits wide, and the C library passes these arguments on unchanged. So they must be
        // 64 bits wide, too.
        let nothing = 0_usize;
        // SAFETY: this is a fork whose child sends no signal when it ends, so other code does not take the
        // child for its own. A program with several threads may do in a child only what it may do in a signal
        // handler, and `watch` does no more.
        let child = unsafe { libc::syscall(libc::SYS_clone, nothing, nothing, nothing, nothing, nothing) };
        match libc::pid_t::try_from(child) {
            Ok(0) => watch(own, own_state.as_raw_fd(), tell.as_raw_fd()),
            Ok(child) if child > 0 => Ok(Self { child, continued }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: this is our own child, which no other code waits for, and the pointer is valid.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            while libc::waitpid(self.child, &raw mut status, libc::__WALL) == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
        if matches!(self.continued.read(&mut [0]), Ok(1)) {
            // This cannot fail: the process is our own.
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }
}

/// The work of the watchdog, with all signals blocked. It makes only system calls, and allocates nothing.
fn watch(watched: libc::pid_t, its_state: RawFd, tell: RawFd) -> ! {
    // SAFETY: a signal handler may make these calls, and all pointers are valid. The closed descriptors
    // belong to this child alone: it must hold nothing open, because someone may kill our process. If the
    // kernel lacks the call (before 5.9), all descriptors stay open until the thread that started the child
    // ends.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setpgid(0, 0);
        let (first, last) = (its_state.min(tell), its_state.max(tell));
        for [from, to] in [[0, first - 1], [first + 1, last - 1], [last + 1, RawFd::MAX]] {
            if from <= to {
                libc::syscall(libc::SYS_close_range, i64::from(from), i64::from(to), 0_i64);
            }
        }
    }
    let pause = libc::timespec { tv_sec: 0, tv_nsec: LOOK_EVERY };
    let mut stat = [0_u8; 512];
    loop {
        // SAFETY: a signal handler may make these calls, too, and all pointers are valid.
        unsafe {
            if libc::getppid() != watched {
                libc::_exit(0);
            }
            let read = libc::pread(its_state, stat.as_mut_ptr().cast(), stat.len(), 0);
            let Some(stat) = usize::try_from(read).ok().and_then(|read| stat.get(..read)) else {
                libc::_exit(0)
            };
            if is_stopped(stat) {
                libc::write(tell, [1_u8].as_ptr().cast(), 1);
                libc::kill(watched, libc::SIGCONT);
            }
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
        }
    }
}

/// Reads the third field of a `stat` in /proc. Returns whether the thread is stopped, but not by a tracer.
fn is_stopped(stat: &[u8]) -> bool {
    let name_ends = stat.iter().rposition(|byte| *byte == b')');
    name_ends.and_then(|end| stat.get(end + 2)) == Some(&b'T')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_told_by_the_state() {
        assert!(is_stopped(b"12 (speed-bump) T 1 12"));
        assert!(is_stopped(b"12 (a) R) T 1 12"));
        assert!(!is_stopped(b"12 (a) T) R 1 12"));
        assert!(!is_stopped(b"12 (traced) t 1 12"));
        for broken in [&b""[..], b")", b"12 (a)"] {
            assert!(!is_stopped(broken));
        }
    }
}
