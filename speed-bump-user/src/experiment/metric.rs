//! What counts the work of a service: units that were done, how long they took, and whether there was any.

pub(crate) mod bench;
pub(crate) mod calls;
pub(crate) mod command;
mod exposition;
pub(crate) mod flow;
pub(crate) mod level;
pub(super) mod page;
pub(crate) mod prometheus;
pub(crate) mod requests;
pub mod sockets;

use std::{fmt, io};

use super::{
    record::{By, Quantity},
    subject::Run,
};
use crate::{
    session::{controls::Controls, snapshot::Snapshot},
    targets::TargetIndex,
    units::Pid,
};
use requests::RequestsError;
pub(crate) use speed_bump_experiment::{latencies, reading::Reading};

/// What counts units of work: calls, requests, runs of a benchmark, or whatever a service exports. It says of
/// itself what a sweep has to know, and counts from [`Metric::open`] on.
pub(crate) trait Metric: fmt::Debug {
    /// What a unit is called, in the singular; `None` of a gauge, which counts none.
    fn unit(&self) -> Option<&'static str>;

    /// What is compared between slices.
    fn by(&self) -> By {
        By::Throughput
    }

    /// Whether it can be bounded: whether readings have this quantity.
    fn has(&self, quantity: Quantity) -> bool {
        matches!(quantity, Quantity::Rate | Quantity::Latency)
    }

    /// The target whose calls are the units, if that is what they are.
    fn target(&self) -> Option<TargetIndex> {
        None
    }

    /// Whether calls have to be timed all along.
    fn times_calls(&self) -> bool {
        false
    }

    /// Whether it can be read in a session of its own targets alone, before the one of the experiment.
    fn is_early(&self) -> bool {
        false
    }

    /// Whether it can be read at any time, and in no time. Others take longer, and may move seldom.
    fn is_quick(&self) -> bool {
        false
    }

    /// Begins to count, unless it has begun.
    ///
    /// # Errors
    /// There is nothing to count, or it cannot be counted.
    fn open(&mut self) -> Result<(), OpenError> {
        Ok(())
    }

    /// What was counted so far. `snapshot` was just taken of the session.
    ///
    /// # Errors
    /// The source does not answer.
    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading>;

    /// Counts calls in this session from here on, which has the targets of metrics in these places.
    ///
    /// # Errors
    /// It cannot be followed.
    fn begin(&mut self, _session: &Controls, _places: &[TargetIndex]) -> io::Result<()> {
        Ok(())
    }

    /// Whether units were done in this thread; `None` where the metric does not know.
    fn is_done_in(&self, _thread: Pid) -> Option<bool> {
        None
    }

    /// Whether units are runs of a benchmark, each of which is a slice.
    fn is_of_runs(&self) -> bool {
        false
    }

    /// Begins a run. One that has not ended is ended.
    ///
    /// # Errors
    /// It cannot be run, or units are no runs.
    fn begin_run(&mut self) -> io::Result<()> {
        Err(no_runs())
    }

    /// The run that was begun, if it has ended.
    ///
    /// # Errors
    /// It failed, or units are no runs.
    fn finished_run(&mut self) -> io::Result<Option<Run>> {
        Err(no_runs())
    }
}

fn no_runs() -> io::Error {
    io::Error::other("there is no benchmark")
}

/// Why a metric counts nothing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A command cannot be run, or prints no number.
    #[error("{0}")]
    Command(io::Error),
    /// The sockets cannot be watched.
    #[error("requests on sockets cannot be counted: {0}; say --progress TARGET")]
    Requests(Box<RequestsError>),
    /// The processes listen on no socket.
    #[error(
        "what is a unit of work? It listens on no socket, where requests could be counted: say --progress \
         TARGET, --latency TARGET, or --metric SOURCE; `--help` shows examples"
    )]
    NoSocket,
}

/// Sums over an experiment's ns stay finite for numbers up to this, either way.
const MAX: f64 = 1e100;

/// Whether a number of a metric's source can be counted with: it is neither infinite nor no number at all,
/// and its sums over time are not either.
fn is_countable(number: f64) -> bool {
    number.abs() <= MAX
}

/// All metrics of an experiment.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// What verdicts go by.
    pub unit: Box<dyn Metric>,
    /// What is recorded beside it.
    pub further: Vec<Box<dyn Metric>>,
}

impl Metrics {
    /// All of them begin to count, unless they have begun. With the error comes which one has it: the unit
    /// is number 0.
    ///
    /// # Errors
    /// One does not.
    pub(crate) fn open(&mut self) -> Result<(), (usize, OpenError)> {
        let mut all = std::iter::once(&mut self.unit).chain(&mut self.further).enumerate();
        all.try_for_each(|(place, metric)| metric.open().map_err(|error| (place, error)))
    }

    /// Whether a reading takes no time: that of the unit does, and nothing else is read.
    pub(crate) fn is_quick(&self) -> bool {
        self.unit.is_quick() && self.further.is_empty()
    }

    /// Has all of them count calls in this session from here on: see [`Metric::begin`].
    ///
    /// # Errors
    /// It cannot be followed.
    pub(crate) fn begin(&mut self, session: &Controls, places: &[TargetIndex]) -> io::Result<()> {
        self.unit.begin(session, places)?;
        self.further.iter_mut().try_for_each(|metric| metric.begin(session, places))
    }
}
