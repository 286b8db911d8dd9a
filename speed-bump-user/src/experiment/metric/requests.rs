//! Answered requests on a service's sockets as units of work.

use std::{
    collections::BTreeSet,
    io,
    time::{Duration, Instant},
};

use super::{
    Metric, OpenError, Reading,
    sockets::{self, Sockets, SocketsError},
};
use crate::{
    experiment::record::{By, Quantity},
    process::{Process, ProcessError},
    session::snapshot::Snapshot,
    units::Pid,
};

/// How often to search for forked workers.
const POLL: Duration = Duration::from_secs(1);

/// The metric: requests that the processes answer, from the start of counting on.
#[derive(Debug)]
pub(crate) struct AnsweredRequests {
    roots: Vec<Pid>,
    /// Whether descendants belong to the service.
    children: bool,
    by: By,
    counting: Option<Counting>,
}

/// The sockets of a service.
#[derive(Debug)]
struct Counting {
    sockets: Sockets,
    first: sockets::Reading,
    roots: Vec<Pid>,
    /// Whether descendants belong to the service.
    children: bool,
    processes: BTreeSet<Pid>,
    looked: Instant,
    /// Whether a warning said that some requests are not counted.
    told: bool,
}

/// Why requests cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum RequestsError {
    /// A process cannot be inspected.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The sockets cannot be watched.
    #[error(transparent)]
    Sockets(#[from] SocketsError),
}

impl AnsweredRequests {
    /// Opens the sockets of these processes, and of their descendants if these belong to the service.
    pub(crate) fn new(roots: &[Pid], children: bool, by: By) -> Self {
        Self { roots: roots.to_vec(), children, by, counting: None }
    }
}

impl Counting {
    /// Watches the sockets of these processes. `None`: they listen on no socket.
    fn attach(roots: &[Pid], children: bool) -> Result<Option<Self>, RequestsError> {
        let processes = processes(roots, children)?;
        let Some(sockets) = Sockets::attach(&processes)? else { return Ok(None) };
        let first = sockets.read();
        let processes = processes.iter().map(Process::pid).collect();
        let roots = roots.to_vec();
        let looked = Instant::now();
        Ok(Some(Self { sockets, first, roots, children, processes, looked, told: false }))
    }

    /// Adds workers that were forked since the last poll.
    fn poll(&mut self) -> Result<(), RequestsError> {
        if !self.children || self.looked.elapsed() < POLL {
            return Ok(());
        }
        self.looked = Instant::now();
        let now = processes(&self.roots, true)?;
        let pids: BTreeSet<Pid> = now.iter().map(Process::pid).collect();
        if pids != self.processes {
            self.sockets.set_processes(&now)?;
            self.processes = pids;
        }
        Ok(())
    }
}

impl Counting {
    fn read(&mut self) -> Reading {
        // If the process that has ended was the service, the session ends too.
        if let Err(error) = self.poll() {
            tracing::debug!("cannot look for forked workers: {error}");
        }
        let requests = self.sockets.read().since(&self.first);
        if requests.no_room > 0 && !self.told {
            self.told = true;
            tracing::warn!(
                "requests on some connections are not counted: the kernel has no memory for what is kept of \
                 them; free some, or say --progress TARGET"
            );
        }
        let latency = requests.latency.0 as f64;
        Reading {
            units: requests.answered as f64,
            latency: Some(latency),
            // By Little's law; negative if several requests were in progress at once.
            idle: Some(requests.over.0 as f64 - latency),
            latencies: Some(requests.latencies()),
            failed: Some(requests.failed as f64),
            under_way: Some(requests.in_flight),
            level: None,
        }
    }
}

impl Metric for AnsweredRequests {
    fn unit(&self) -> Option<&'static str> {
        Some("answered request on a socket")
    }

    fn by(&self) -> By {
        self.by
    }

    fn has(&self, quantity: Quantity) -> bool {
        matches!(quantity, Quantity::Rate | Quantity::Latency | Quantity::P50 | Quantity::P99)
    }

    fn is_early(&self) -> bool {
        true
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn open(&mut self) -> Result<(), OpenError> {
        if self.counting.is_none() {
            let counting = Counting::attach(&self.roots, self.children);
            let counting = counting.map_err(|error| OpenError::Requests(Box::new(error)))?;
            self.counting = Some(counting.ok_or(OpenError::NoSocket)?);
        }
        Ok(())
    }

    fn read(&mut self, _: &Snapshot) -> io::Result<Reading> {
        let none = || io::Error::other("the sockets are not watched yet");
        self.counting.as_mut().map(Counting::read).ok_or_else(none)
    }

    fn is_done_in(&self, thread: Pid) -> Option<bool> {
        self.counting.as_ref().map(|counting| counting.sockets.has_answered(thread))
    }
}

/// These processes, and their descendants.
fn processes(roots: &[Pid], children: bool) -> Result<Vec<Process>, ProcessError> {
    let mut all: Vec<Process> = roots.iter().map(|pid| Process::open(*pid)).collect::<Result<_, _>>()?;
    if children {
        let found: Vec<_> = all.iter().filter_map(|process| process.descendants().ok()).collect();
        all.extend(found.into_iter().flat_map(|found| found.processes));
    }
    Ok(all)
}
