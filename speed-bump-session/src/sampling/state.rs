//! Finds out whether a thread works or waits at the moment, from its file `syscall` in /proc.

use std::{fs::File, os::unix::fs::FileExt as _};

use super::profile::InterpreterSeen;

/// The most bytes of the file `syscall`: a number, six arguments and two addresses.
const BYTES: usize = 256;
/// What a thread waits for if its system call is none of [`CALLS`].
const OTHER: &str = "a system call";
/// What a thread waits for if it is blocked outside of system calls, for example in a page fault.
const NO_CALL: &str = "memory or a tracer";
/// What a thread waits for at a futex of the interpreter itself.
const INTERPRETER: &str = "the interpreter's lock";
/// What a thread waits for at any other futex.
const LOCK: &str = "a lock";

/// System calls in which threads wait, and what the user reads for each.
const CALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_clock_nanosleep, "sleep"),
    (libc::SYS_nanosleep, "sleep"),
    (libc::SYS_epoll_pwait, "epoll"),
    (libc::SYS_epoll_pwait2, "epoll"),
    (libc::SYS_ppoll, "poll"),
    (libc::SYS_pselect6, "select"),
    (libc::SYS_read, "read"),
    (libc::SYS_readv, "read"),
    (libc::SYS_pread64, "read"),
    (libc::SYS_recvfrom, "recv"),
    (libc::SYS_recvmsg, "recv"),
    (libc::SYS_recvmmsg, "recv"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "write"),
    (libc::SYS_pwrite64, "write"),
    (libc::SYS_sendto, "send"),
    (libc::SYS_sendmsg, "send"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fsync"),
    (libc::SYS_flock, "a lock of a file"),
    (libc::SYS_wait4, "the end of a child"),
    (libc::SYS_waitid, "the end of a child"),
    (libc::SYS_ioctl, "a device"),
    (libc::SYS_io_getevents, "the disk"),
    (libc::SYS_io_uring_enter, "io_uring"),
];
/// System calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(libc::c_long, &str)] =
    &[(libc::SYS_epoll_wait, "epoll"), (libc::SYS_poll, "poll"), (libc::SYS_select, "select")];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(libc::c_long, &str)] = &[];

/// System calls that only sleep if they wait for no descriptor. `time.sleep` used these calls up to 3.10.
#[cfg(target_arch = "x86_64")]
const SELECTS: &[libc::c_long] = &[libc::SYS_select, libc::SYS_pselect6];
#[cfg(not(target_arch = "x86_64"))]
const SELECTS: &[libc::c_long] = &[libc::SYS_pselect6];

/// What a thread does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The thread has a processor, or waits for one.
    Works,
    /// The thread waits for this.
    Waits(&'static str),
}

impl State {
    /// Reads an open file `syscall`; `None` if the thread has ended, or we may not read the file.
    pub(super) fn read(file: &File, interpreter: &InterpreterSeen) -> Option<Self> {
        let mut text = [0; BYTES];
        let read = file.read_at(&mut text, 0).ok()?;
        parse(str::from_utf8(text.get(..read)?).ok()?, |futex| interpreter.is_own_lock(futex))
    }
}

/// Parses the text of a file `syscall` (proc_pid_syscall(5)).
fn parse(text: &str, is_interpreters: impl Fn(u64) -> bool) -> Option<State> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(State::Works);
    }
    let number: libc::c_long = first.parse().ok()?;
    if number < 0 {
        return Some(State::Waits(NO_CALL));
    }
    if number == libc::SYS_futex {
        let address = words.next()?.strip_prefix("0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        return Some(State::Waits(if is_interpreters(address) { INTERPRETER } else { LOCK }));
    }
    if SELECTS.contains(&number) && words.next() == Some("0x0") {
        return Some(State::Waits("sleep"));
    }
    let known = CALLS.iter().chain(OLDER).find(|(of, _)| *of == number);
    Some(State::Waits(known.map_or(OTHER, |(_, what)| what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_from_waits() {
        let of = |text: &str| parse(text, |futex| futex == 0x7f00_aa10);
        let call = |number: libc::c_long| format!("{number} 0x7f00aa10 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7f01\n");
        assert_eq!(of("running\n"), Some(State::Works));
        for (number, what) in [
            (libc::SYS_clock_nanosleep, "sleep"),
            (libc::SYS_epoll_pwait, "epoll"),
            (libc::SYS_futex, INTERPRETER),
            (libc::SYS_wait4, "the end of a child"),
            (libc::SYS_getpid, OTHER),
        ] {
            assert_eq!(of(&call(number)), Some(State::Waits(what)), "{number}");
        }
        assert_eq!(of(&call(libc::SYS_pselect6)), Some(State::Waits("select")));
        let none = call(libc::SYS_pselect6).replace("0x7f00aa10", "0x0");
        assert_eq!(of(&none), Some(State::Waits("sleep")));
        let futex = format!("{} 0x7f000000 0x189 0x0 0x0 0x0 0x0 0x7ffd 0x7f01\n", libc::SYS_futex);
        assert_eq!(of(&futex), Some(State::Waits(LOCK)));
        assert_eq!(of("-1 0x7ffd 0x7f01\n"), Some(State::Waits(NO_CALL)));
        for text in ["", "walking\n", &format!("{}\n", libc::SYS_futex)] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
