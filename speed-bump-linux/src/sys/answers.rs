//! Checks whether the file system of a file answers requests.
//!
//! The server of a FUSE file system may take a request and never answer it. Then the thread that asked waits
//! for ever: not even SIGKILL ends the thread, and its process never ends. So a child process asks first. If
//! the child does not end in time, we leave it behind. The child holds nothing open.
//!
//! A file system on a disk either answers or fails. A file system without a disk has device major number 0.
//! These are the kernel's own file systems, overlayfs, and all that other programs serve. We ask each of
//! these again every few seconds.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, AsRawFd as _, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, StatxFlags, statx};

use super::signals::Blocked;

/// How long we wait for an answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// `ANSWERED` is how long we remember that a file system answers, and `UNANSWERED` is how long we remember
/// that it does not. Each question may leave a child behind.
const ANSWERED: Duration = Duration::from_secs(5);
const UNANSWERED: Duration = Duration::from_secs(20);
/// Once we have left this many children behind, we ask no other file system. We then assume that a file
/// system which we do not know does not answer.
const MAX_LEFT_BEHIND: usize = 4;
/// The file systems where the child also reads the file: FUSE, and overlayfs, which may lie over a FUSE file
/// system (the numbers are from statfs(2)). On some other file systems, reading a file consumes something.
const READ: [libc::c_long; 2] = [0x6573_5546, 0x794c_7630];
/// The most file systems that we remember.
const REMEMBERED: usize = 1_024;

/// When we last asked each file system, and whether it answered.
type Asked = BTreeMap<(u32, u32), (Instant, bool)>;

static ASKED: Mutex<Asked> = Mutex::new(Asked::new());
static LEFT_BEHIND: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// Fails if the file system of a file does not answer. The caller has found this file but not opened it
/// (`O_PATH`).
///
/// # Errors
/// `TimedOut` if the file system does not answer. A file that we cannot check passes: opening it will return
/// the reason.
pub fn check(found: impl AsFd) -> io::Result<()> {
    // This call sends no request to the file system's server.
    let Ok(known) = statx(&found, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
    else {
        return Ok(());
    };
    let device = (known.stx_dev_major, known.stx_dev_minor);
    if device.0 != 0 {
        return Ok(());
    }
    let is_new =
        |(at, answers): &(Instant, bool)| at.elapsed() < if *answers { ANSWERED } else { UNANSWERED };
    let before = asked().get(&device).copied().filter(is_new);
    let ask = || left_behind().len() < MAX_LEFT_BEHIND && asks(found.as_fd().as_raw_fd());
    let answers = before.map_or_else(ask, |(_, answers)| answers);
    if before.is_none() {
        let mut asked = asked();
        if asked.len() >= REMEMBERED {
            asked.clear();
        }
        asked.insert(device, (Instant::now(), answers));
    }
    if answers {
        return Ok(());
    }
    let text = "its file system does not answer: who serves it (FUSE) may hang, or its disk";
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

fn asked() -> MutexGuard<'static, Asked> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child that opens and reads the file. Returns whether the child ended in time, or true if we could
/// not start a child.
fn asks(found: RawFd) -> bool {
    let mut path = [0_u8; 32];
    if io::Write::write_fmt(&mut &mut path[..31], format_args!("/proc/self/fd/{found}")).is_err() {
        return true;
    }
    // The child inherits the blocked signals, so none of our handlers runs there.
    let quiet = Blocked::all();
    // Registers are 64 bits wide, and the C library passes these arguments on unchanged. So they must be 64
    // bits wide, too.
    let nothing = 0_usize;
    // SAFETY: this is a fork whose child sends no signal when it ends, so other code does not take the child
    // for its own. A program with several threads may do in a child only what it may do in a signal handler,
    // and `ask` does no more.
    let child = unsafe { libc::syscall(libc::SYS_clone, nothing, nothing, nothing, nothing, nothing) };
    let child = match libc::pid_t::try_from(child) {
        Ok(0) => ask(&path, found),
        Ok(child) if child > 0 => child,
        _ => return true,
    };
    drop(quiet);
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(100);
    while !has_ended(child) {
        if Instant::now() > until {
            // SAFETY: this is our own child; no other process can have its id before we wait for it.
            unsafe { libc::kill(child, libc::SIGKILL) };
            left_behind().push(child);
            return false;
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(20));
    }
    true
}

/// Whether a child of ours has ended. No other code waits for the child.
fn has_ended(child: libc::pid_t) -> bool {
    // SAFETY: the call follows no pointer.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) != 0 }
}

/// The children that we left behind and that still run.
fn left_behind() -> MutexGuard<'static, Vec<libc::pid_t>> {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|child| !has_ended(*child));
    left
}

/// The work of the child, with all signals blocked. The child makes only system calls, and allocates nothing.
fn ask(path: &[u8; 32], found: RawFd) -> ! {
    let mut first = [0_u8; 512];
    // SAFETY: a signal handler may make these calls, and all pointers are valid: the path ends with a 0. The
    // calls fill structures where all bits may be 0. The closed descriptors belong to this child alone: it
    // must hold nothing open, because our process may end before the child.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setpgid(0, 0);
        for [from, to] in [[0, found - 1], [found + 1, RawFd::MAX]] {
            if from <= to {
                libc::syscall(libc::SYS_close_range, i64::from(from), i64::from(to), 0_i64);
            }
        }
        let mut stat = std::mem::zeroed::<libc::stat>();
        let mut system = std::mem::zeroed::<libc::statfs>();
        let is_known = libc::fstat(found, &raw mut stat) == 0 && libc::fstatfs(found, &raw mut system) == 0;
        if is_known && stat.st_mode & libc::S_IFMT == libc::S_IFREG && READ.contains(&system.f_type) {
            let flags = libc::O_RDONLY | libc::O_NOCTTY | libc::O_NONBLOCK;
            let file = libc::open(path.as_ptr().cast(), flags);
            libc::read(file, first.as_mut_ptr().cast(), first.len());
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        fs::File,
        io::{Read as _, Write as _},
    };

    use super::*;

    #[test]
    fn files_of_the_kernel_and_of_disks_answer() {
        for path in ["/proc/self/stat", "/proc/self/exe", "/dev/null", "/"] {
            check(File::open(path).unwrap()).unwrap();
        }
        let (mut reader, mut writer) = io::pipe().unwrap();
        check(&reader).unwrap();
        writer.write_all(b"x").unwrap();
        assert!(asks(reader.as_raw_fd()));
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 1, "a pipe is not read");
        assert!(asks(File::open("/proc/self/stat").unwrap().as_raw_fd()));
    }
}
