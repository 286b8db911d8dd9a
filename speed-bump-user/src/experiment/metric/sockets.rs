//! Requests that a service answers on its sockets. Nothing of the service has to be known.
//!
//! BPF programs see what the service's processes receive and send on connections that were accepted on their
//! listening sockets, TCP and unix streams. A request begins with the first receive after the last send, and
//! is answered with the first send after that. This holds for every protocol in which one side asks and the
//! other answers: HTTP, Redis, PostgreSQL.
//!
//! The latency is from when the process has taken the first of the request's data to when it has sent the
//! first of its answer: from the end of one system call to the end of another. What is not in it: the time
//! that data waits in the kernel until the process asks for it (so that of a queue in front of a busy
//! service), the network, and the rest of an answer that is sent in pieces.
//!
//! What makes a unit something else than a request is counted, or said here:
//! - Pipelining: requests that come before the answer to an earlier one are one with it
//!   ([`Requests::more_receives`]), as is a request that comes in pieces.
//! - Streaming, and messages that nobody asked for: only the first send is an answer
//!   ([`Requests::more_sends`]). So is a short note that a request has come (`100 Continue`).
//! - Many requests at once on one connection (HTTP/2, gRPC): every change from receiving to sending is a
//!   unit.
//! - TLS: each of the one or two round trips of a handshake is a unit. With kept connections that is little;
//!   [`Requests::connections`] tells how many there were.
//!
//! Not seen: splice(2) from a socket; QUIC and all else over UDP; unix sockets of the kinds `SOCK_SEQPACKET`
//! and `SOCK_DGRAM`. Linux 6.3 is the first that can do it.

mod error;
mod listening;
mod offsets;
mod programs;
mod requests;

use std::collections::BTreeSet;

use aya::maps::{HashMap, MapData};
use speed_bump_abi::{
    UnixName,
    requests::maps::{self, NAMES_CAPACITY},
};

use crate::{kernel::namespace::Namespace, process::Process, units::Pid};
pub use error::SocketsError;
pub use listening::Listening;
use programs::Programs;
use requests::Counts;
pub use requests::{Reading, Requests};

/// The requests of a service, counted for as long as this lives.
#[derive(Debug)]
pub struct Sockets {
    programs: Programs,
    counts: Counts,
    /// The same processes as in the map.
    processes: BTreeSet<Pid>,
    name_map: HashMap<MapData, UnixName, u8>,
    listening: Listening,
}

impl Sockets {
    /// Counts the requests that these processes answer from now on. `None`: none of them listens on a TCP or
    /// unix stream socket.
    ///
    /// # Errors
    /// Missing privilege, or a kernel before Linux 6.3.
    pub fn attach(processes: &[Process]) -> Result<Option<Self>, SocketsError> {
        let listening = Listening::of_all(processes)?;
        if listening.is_empty() {
            return Ok(None);
        }
        if Namespace::Pid.is_initial() != Some(true) {
            return Err(SocketsError::OtherNamespace);
        }
        let mut programs = Programs::create()?;
        let counts = Counts::of(&programs)?;
        let name_map = programs.hash_map(maps::NAMES)?;
        let mut sockets =
            Self { programs, counts, processes: BTreeSet::new(), name_map, listening: Listening::default() };
        sockets.count_all(processes, listening)?;
        Ok(Some(sockets))
    }

    /// Has these processes be the service from now on, with what they listen on now: after a worker was
    /// forked, say, or has ended. What was counted stays, and connections that were counted are counted on.
    /// One that has ended is to be left out soon: its id may come to be another's.
    ///
    /// # Errors
    /// As [`Sockets::attach`]; the processes are as they were then.
    pub fn set_processes(&mut self, processes: &[Process]) -> Result<(), SocketsError> {
        let listening = Listening::of_all(processes)?;
        self.count_all(processes, listening)
    }

    /// What the processes listen on, and have listened on.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// What was counted until now. Takes microseconds, and no system call but for the clock.
    pub fn read(&self) -> Reading {
        self.counts.read()
    }

    /// Whether a thread has answered a request so far, or one before it that had its number.
    pub fn has_answered(&self, thread: Pid) -> bool {
        self.counts.has_answered(thread)
    }

    fn count_all(&mut self, processes: &[Process], listening: Listening) -> Result<(), SocketsError> {
        let wanted: BTreeSet<Pid> = processes.iter().map(Process::pid).collect();
        let mut all = self.listening.clone();
        all.extend(listening);
        if all.names().len() > NAMES_CAPACITY as usize {
            return Err(SocketsError::TooManyNames { count: all.names().len() });
        }
        for name in all.names().difference(self.listening.names()) {
            let name_map = &mut self.name_map;
            name_map.insert(name, 1, 0).map_err(|error| SocketsError::Map { name: maps::NAMES, error })?;
        }
        all.ports().iter().for_each(|port| self.counts.add_port(*port));
        self.listening = all;
        // The processes come last: then all programs see them from the same time on.
        self.programs.attach()?;
        self.processes.difference(&wanted).for_each(|gone| self.counts.set_process(*gone, false));
        wanted.difference(&self.processes).for_each(|new| self.counts.set_process(*new, true));
        self.processes = wanted;
        Ok(())
    }
}
