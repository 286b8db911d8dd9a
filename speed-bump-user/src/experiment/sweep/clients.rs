//! Whether anything asks the service for its work: a batch job does all that it can, as it has no clients.
//!
//! A service without clients has no connection but those within itself, and no pipe that another program
//! writes. Or the threads that do units never wait, so that nothing can keep work from them. Threads that
//! sleep between units are paced by a clock.

use std::{collections::BTreeMap, io, os::fd::AsFd as _};

use rustix::{
    fs::{AtFlags, Mode, OFlags, statat},
    net::{AddressFamily, SocketAddrAny, getpeername, getsockname, sockopt::socket_domain},
};

use crate::{
    experiment::{descriptors::links, record::Wait},
    process::Process,
    sys::remote_descriptor::Descriptors,
    units::Pid,
};

/// Threads that wait for less than this share of the time have no client to wait for.
const HARDLY: f64 = 0.05;
/// The most descriptors that are read of a process.
const DESCRIPTORS: usize = 65_536;

/// Whether nothing asks these processes, and with `children` their descendants, for their work. `waits` is
/// what the threads that do units wait in; `None` if that is unknown. Returns `false` if the answer is
/// unknown.
pub(super) fn are_none(processes: &[Pid], children: bool, waits: Option<&[Wait]>) -> bool {
    let share = |is_it: &dyn Fn(&Wait) -> bool| -> Option<f64> {
        Some(waits?.iter().filter(|wait| is_it(wait)).map(|wait| wait.share).sum())
    };
    if share(&|_| true).is_some_and(|share| share < HARDLY) {
        return true;
    }
    let is_paced = share(&|wait| wait.what == "sleep").is_some_and(|share| share >= HARDLY);
    !is_paced && are_connected_to_none(processes, children).unwrap_or(false)
}

/// What the descriptors of all processes lead to.
#[derive(Debug, Default)]
struct Ends {
    /// Whether each pipe is read, and whether it is written, by its number.
    pipes: BTreeMap<u64, (bool, bool)>,
    /// Sockets by number: whether they are one end of a pair without names.
    sockets: BTreeMap<u64, bool>,
    /// Whether files are watched: their changes are what asks.
    watches_files: bool,
}

fn are_connected_to_none(processes: &[Pid], children: bool) -> Option<bool> {
    let mut all = BTreeMap::new();
    for pid in processes {
        let process = Process::open(*pid).ok()?;
        if children {
            let below = process.descendants().ok()?.processes;
            all.extend(below.into_iter().map(|process| (process.pid(), process)));
        }
        all.insert(*pid, process);
    }
    let mut ends = Ends::default();
    for process in all.values() {
        match ends.add(process) {
            Err(_) if process.is_alive() => return None,
            _ => {}
        }
    }
    Some(ends.are_all_within())
}

impl Ends {
    fn add(&mut self, process: &Process) -> io::Result<()> {
        let folder = process.open_entry("fd", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let descriptors = Descriptors::of_thread(process.as_fd(), process.pid(), process.pid())?;
        for (seen, link) in links(&folder)?.enumerate() {
            let (number, link) = link?;
            if seen > DESCRIPTORS {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let link = link.to_string_lossy();
            self.watches_files |= link.starts_with("anon_inode:inotify");
            if let Some(pipe) = inode(&link, "pipe:[") {
                // The link's own mode, not that of what it leads to (proc_pid_fd(5)).
                let mode = statat(&folder, number.to_string(), AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
                let mode = Mode::from_raw_mode(mode);
                let (reads, writes) = self.pipes.entry(pipe).or_default();
                *reads |= mode.contains(Mode::RUSR);
                *writes |= mode.contains(Mode::WUSR);
            } else if let Some(socket) = inode(&link, "socket:[") {
                let taken = descriptors.as_ref().and_then(|of| of.take(number).ok());
                let is_of_pair = taken.is_some_and(|socket| {
                    let is_unnamed = |address: SocketAddrAny| address.addr_len() <= 2;
                    socket_domain(&socket) == Ok(AddressFamily::UNIX)
                        && getsockname(&socket).is_ok_and(is_unnamed)
                        && getpeername(&socket).is_ok_and(|peer| peer.is_none_or(is_unnamed))
                });
                self.sockets.insert(socket, is_of_pair);
            }
        }
        Ok(())
    }

    /// Whether nothing leads to other programs. It is not known which two sockets are a pair, only that each
    /// socket has a partner.
    fn are_all_within(&self) -> bool {
        let is_fed = self.pipes.values().any(|(reads, writes)| *reads && !writes);
        let are_pairs =
            self.sockets.values().all(|is_of_pair| *is_of_pair) && self.sockets.len().is_multiple_of(2);
        !is_fed && are_pairs && !self.watches_files
    }
}

/// The number in `pipe:[1234]`.
fn inode(link: &str, kind: &str) -> Option<u64> {
    link.strip_prefix(kind)?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        net::TcpListener,
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// Whether a process with this input and output is connected to no other program.
    fn ends(input: impl Into<Stdio>, output: impl Into<Stdio>) -> bool {
        let mut child: Child = Command::new("sleep")
            .arg("60")
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::new(child.id().cast_signed()).unwrap();
        let found = are_connected_to_none(&[pid], true).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        found
    }

    #[test]
    fn what_leads_to_other_programs_is_told_from_what_does_not() {
        assert!(ends(Stdio::null(), Stdio::null()));
        // A program that reads the output of the process asks it for nothing.
        assert!(ends(Stdio::null(), Stdio::piped()));
        assert!(!ends(Stdio::piped(), Stdio::null()));
        let (one, other) = UnixStream::pair().unwrap();
        assert!(!ends(OwnedFd::from(one.try_clone().unwrap()), Stdio::null()));
        assert!(ends(OwnedFd::from(one), OwnedFd::from(other)));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!ends(OwnedFd::from(socket), Stdio::null()));
    }

    #[test]
    fn threads_that_never_wait_have_no_clients() {
        let wait = |what: &str, share| Wait {
            name: "f".to_owned(),
            file: "/app.py".into(),
            line: None,
            inside: None,
            what: what.to_owned(),
            share,
        };
        let nobody = [Pid::new(i32::MAX).unwrap()];
        assert!(are_none(&nobody, true, Some(&[wait("epoll", 0.02), wait("sleep", 0.02)])));
        assert!(!are_none(&nobody, true, Some(&[wait("epoll", 0.2)])));
        assert!(!are_none(&nobody, true, None));
        let mut child =
            Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let pids = [Pid::new(child.id().cast_signed()).unwrap()];
        let found = ["sleep", "a lock"].map(|what| are_none(&pids, true, Some(&[wait(what, 0.5)])));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [false, true]);
    }
}
