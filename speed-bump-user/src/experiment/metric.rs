//! Metrics: what counts units of work and their time, or is recorded beside them.

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
pub(crate) mod steps;

use std::{fmt, io};

use super::{
    record::{By, InnerUnit, Quantity},
    subject::Run,
};
use crate::{
    session::{controls::Controls, snapshot::Snapshot},
    targets::TargetIndex,
    units::Pid,
};
use requests::RequestsError;
pub(crate) use speed_bump_experiment::{latencies, reading::Reading};

/// A metric counts units of work: calls, requests, runs of a benchmark, or what a service exports. It
/// describes itself to the sweep, and counts from [`Metric::open`] on.
pub(crate) trait Metric: fmt::Debug {
    /// The name of a unit, in the singular; `None` for a gauge, which counts none.
    fn unit(&self) -> Option<&'static str>;

    /// Which time per unit to compare between slices.
    fn by(&self) -> By {
        By::Throughput
    }

    /// Whether readings have this quantity, so that a guard can bound it.
    fn has(&self, quantity: Quantity) -> bool {
        matches!(quantity, Quantity::Rate | Quantity::Latency)
    }

    /// The target whose calls are the units, if units are calls.
    fn target(&self) -> Option<TargetIndex> {
        None
    }

    /// The target whose calls are the longer units, if units are steps inside of calls.
    fn longer_target(&self) -> Option<TargetIndex> {
        None
    }

    /// Whether the session must time calls during the whole experiment.
    fn times_calls(&self) -> bool {
        false
    }

    /// Whether it can be read in a session with only its own targets, before the experiment's session.
    fn is_early(&self) -> bool {
        false
    }

    /// Whether it can be read at any time without delay. Other metrics take longer, and may change rarely.
    fn is_quick(&self) -> bool {
        false
    }

    /// Starts to count, unless it has started.
    ///
    /// # Errors
    /// There is nothing to count, or counting is not possible.
    fn open(&mut self) -> Result<(), OpenError> {
        Ok(())
    }

    /// The counts so far. `snapshot` is a new snapshot of the session.
    ///
    /// # Errors
    /// The source does not answer.
    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading>;

    /// Starts to count calls in this session, which has the targets of metrics in these places.
    ///
    /// # Errors
    /// The session cannot be read.
    fn begin(&mut self, _session: &Controls, _places: &[TargetIndex]) -> io::Result<()> {
        Ok(())
    }

    /// The census is over: calls are timed no more, unless a metric needs it ([`Metric::times_calls`]).
    fn census_is_over(&mut self) {}

    /// Whether this thread did units; `None` if the metric does not know.
    fn is_done_in(&self, _thread: Pid) -> Option<bool> {
        None
    }

    /// The longer unit, if units are steps inside of it.
    fn inner_unit(&self) -> Option<InnerUnit> {
        None
    }

    /// Whether units are runs of a benchmark; then each run is a slice.
    fn is_of_runs(&self) -> bool {
        false
    }

    /// Starts a run, and ends a run in progress.
    ///
    /// # Errors
    /// It cannot run, or units are no runs.
    fn begin_run(&mut self) -> io::Result<()> {
        Err(no_runs())
    }

    /// The run that was started, if it has ended.
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

/// Why a metric cannot count.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A command cannot be run, or prints no number.
    #[error("{0}")]
    Command(io::Error),
    /// The sockets cannot be watched.
    #[error("requests on sockets cannot be counted: {0}; use --progress TARGET")]
    Requests(Box<RequestsError>),
    /// The processes listen on no socket.
    #[error(
        "what is a unit of work? It listens on no socket, where requests could be counted: say --progress \
         TARGET, --latency TARGET, or --metric SOURCE; `--help` shows examples"
    )]
    NoSocket,
}

/// Sums over an experiment in ns stay finite for numbers up to this magnitude.
const MAX: f64 = 1e100;

/// Whether a number of a source is usable: it is finite, and its sums over time stay finite.
fn is_countable(number: f64) -> bool {
    number.abs() <= MAX
}

/// All metrics of an experiment.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The metric of the units, for verdicts.
    pub unit: Box<dyn Metric>,
    /// Further metrics, which are only recorded.
    pub further: Vec<Box<dyn Metric>>,
}

impl Metrics {
    /// Starts all metrics, unless they have started. The error has the number of the metric; the unit is
    /// number 0.
    ///
    /// # Errors
    /// One cannot count.
    pub(crate) fn open(&mut self) -> Result<(), (usize, OpenError)> {
        let mut all = std::iter::once(&mut self.unit).chain(&mut self.further).enumerate();
        all.try_for_each(|(place, metric)| metric.open().map_err(|error| (place, error)))
    }

    /// Whether a reading takes no time: there is only the unit's metric, and it can be read without delay.
    pub(crate) fn is_quick(&self) -> bool {
        self.unit.is_quick() && self.further.is_empty()
    }

    /// Starts all of them in this session: see [`Metric::begin`].
    ///
    /// # Errors
    /// The session cannot be read.
    pub(crate) fn begin(&mut self, session: &Controls, places: &[TargetIndex]) -> io::Result<()> {
        self.unit.begin(session, places)?;
        self.further.iter_mut().try_for_each(|metric| metric.begin(session, places))
    }

    /// Tells all of them: see [`Metric::census_is_over`].
    pub(crate) fn census_is_over(&mut self) {
        self.unit.census_is_over();
        self.further.iter_mut().for_each(|metric| metric.census_is_over());
    }
}
