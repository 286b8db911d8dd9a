//! Whether a file's file system answers at all.
//!
//! Where the server of a FUSE file system has taken a request and does not answer it, the kernel lets nobody
//! go who waits for that: not even SIGKILL ends the thread, and a process with such a thread never ends. So a
//! child asks first, and is left behind where it does not come back in time. It holds nothing open.
//!
//! File systems on disks answer, or fail. Those without a disk have the number 0 for their devices' kind: the
//! kernel's own, overlayfs, and all that somebody else serves. Of those, each is asked every few seconds.

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

/// What does not answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(4);
/// An answer counts for so long, and none for so long: each time a child may be left behind.
const ANSWERED: Duration = Duration::from_secs(5);
const UNANSWERED: Duration = Duration::from_secs(20);
/// With so many children left behind, no other file system is asked: each that is not known does not answer.
const MAX_LEFT_BEHIND: usize = 4;
/// File systems of which a file is read, too: FUSE, and overlayfs, which may lie over one (statfs(2)). There
/// are others where to read a file takes something away.
const READ: [libc::c_long; 2] = [0x6573_5546, 0x794c_7630];
/// File systems that are remembered.
const REMEMBERED: usize = 1_024;

/// When file systems were asked last, and whether they answered.
type Asked = BTreeMap<(u32, u32), (Instant, bool)>;

static ASKED: Mutex<Asked> = Mutex::new(Asked::new());
static LEFT_BEHIND: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// Refuses a file, found and not opened (`O_PATH`), whose file system does not answer.
///
/// # Errors
/// `TimedOut`: it does not. A file of which nothing can be known is not refused: who opens it is told why.
pub fn check(found: impl AsFd) -> io::Result<()> {
    // Without a request to whoever serves it.
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

/// Has a child open and read the file. Whether it came back in time; so does one that cannot be made.
fn asks(found: RawFd) -> bool {
    let mut path = [0_u8; 32];
    if io::Write::write_fmt(&mut &mut path[..31], format_args!("/proc/self/fd/{found}")).is_err() {
        return true;
    }
    // The child inherits it: no handler of ours runs there.
    let quiet = Blocked::all();
    // Registers are 64 bits wide, and so are arguments that the C library passes on as they are.
    let nothing = 0_usize;
    // SAFETY: a fork whose end is told by no signal, so that nobody takes it for a child of theirs. The child
    // of a program with threads may do what a signal handler may, and `ask` does no more.
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
            // SAFETY: our own child, whose id is its own until it is waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            left_behind().push(child);
            return false;
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(20));
    }
    true
}

/// Whether a child of ours has ended; nobody else waits for it.
fn has_ended(child: libc::pid_t) -> bool {
    // SAFETY: no pointer is followed.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) != 0 }
}

/// Children that did not come back, as far as they have not ended since.
fn left_behind() -> MutexGuard<'static, Vec<libc::pid_t>> {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|child| !has_ended(*child));
    left
}

/// What the child does, with all signals blocked: system calls alone, and no allocation.
fn ask(path: &[u8; 32], found: RawFd) -> ! {
    let mut first = [0_u8; 512];
    // SAFETY: calls that a signal handler may make, with valid pointers: the path ends with a 0. Of what they
    // fill, all bits may be 0. What is closed belongs to this child alone: it must hold nothing open for a
    // process that ends before it.
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
