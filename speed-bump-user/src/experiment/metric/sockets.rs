//! Counts the requests that a service answers on its sockets, without knowing its program.
//!
//! BPF programs see receives and sends of the service's processes on connections that their listening sockets
//! accepted, TCP and unix streams. A request begins with the first receive after the last send, and is
//! answered with the first send after that. This fits every protocol in which one side asks and the other
//! answers: HTTP, Redis, PostgreSQL.
//!
//! The latency is the time from the first receive of the request's data to the first send of its
//! answer, from the end of one system call to the end of the other. It does not include the time that data
//! waits in the kernel until the process reads it (a queue in front of a busy service), the network, and the
//! rest of an answer that is sent in pieces.
//!
//! In these cases a unit is not a request:
//! - Pipelining: requests that arrive before the answer to an earlier one count as part of it
//!   ([`Requests::more_receives`]), like the pieces of one request.
//! - Streaming, and messages without a request: only the first send counts as an answer
//!   ([`Requests::more_sends`]). A preliminary answer (`100 Continue`) counts as the answer.
//! - Many requests at once on one connection (HTTP/2, gRPC): every change from receiving to sending is a
//!   unit.
//! - TLS: each of the one or two round trips of a handshake is a unit. With persistent connections there are
//!   few; [`Requests::connections`] has their number.
//!
//! Not counted: splice(2) from a socket; QUIC and everything else over UDP; unix sockets of the kinds
//! `SOCK_SEQPACKET` and `SOCK_DGRAM`. Needs Linux 6.3 or later.

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

/// Counts the requests of a service while this lives.
#[derive(Debug)]
pub struct Sockets {
    programs: Programs,
    counts: Counts,
    /// The processes in the map.
    processes: BTreeSet<Pid>,
    name_map: HashMap<MapData, UnixName, u8>,
    listening: Listening,
}

impl Sockets {
    /// Starts to count the requests that these processes answer. `None`: none of them listens on a TCP or
    /// unix stream socket.
    ///
    /// # Errors
    /// A missing privilege, or a kernel before Linux 6.3.
    pub fn attach(processes: &[Process]) -> Result<Option<Self>, SocketsError> {
        let listening = Listening::read(processes)?;
        if listening.is_empty() {
            return Ok(None);
        }
        if Namespace::Pid.is_initial() != Some(true) {
            return Err(SocketsError::OtherNamespace);
        }
        let mut programs = Programs::create()?;
        let counts = Counts::open(&programs)?;
        let name_map = programs.hash_map(maps::NAMES)?;
        let mut sockets =
            Self { programs, counts, processes: BTreeSet::new(), name_map, listening: Listening::default() };
        sockets.count_all(processes, listening)?;
        Ok(Some(sockets))
    }

    /// Sets the processes of the service, and reads what they listen on, for example after a worker was
    /// forked or has ended. Counts stay, and known connections continue to count. Leave out an ended process
    /// soon: another process may get its id.
    ///
    /// # Errors
    /// As [`Sockets::attach`]; the processes stay unchanged.
    pub fn set_processes(&mut self, processes: &[Process]) -> Result<(), SocketsError> {
        let listening = Listening::read(processes)?;
        self.count_all(processes, listening)
    }

    /// Everything that the processes listen on or have listened on.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// The counts so far. Takes microseconds, and no system call except for the clock.
    pub fn read(&self) -> Reading {
        self.counts.read()
    }

    /// Whether a thread with this id has answered a request.
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
        // Set the processes last, so that all programs see them from the same time on.
        self.programs.attach()?;
        self.processes.difference(&wanted).for_each(|gone| self.counts.set_process(*gone, false));
        wanted.difference(&self.processes).for_each(|new| self.counts.set_process(*new, true));
        self.processes = wanted;
        Ok(())
    }
}
