//! What counts the work of a service: units that were done, how long they took, and whether there was any.

pub mod bench;
pub mod calls;
pub mod command;
mod exposition;
pub mod flow;
pub mod level;
pub(super) mod page;
pub mod prometheus;
pub mod requests;
pub mod sockets;

use std::{fmt, io};

use crate::{
    session::{controls::Controls, snapshot::Snapshot},
    units::Pid,
};
use bench::Bench;
pub use speed_bump_experiment::{latencies, reading::Reading};

/// See above.
pub trait Metric: fmt::Debug {
    /// What was counted so far. `snapshot` was just taken of the session.
    ///
    /// # Errors
    /// The source does not answer.
    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading>;

    /// Another session begins, whose counters begin at zero.
    ///
    /// # Errors
    /// It cannot be followed.
    fn begin(&mut self, _session: &Controls) -> io::Result<()> {
        Ok(())
    }

    /// Whether units were done in this thread; `None` where the metric does not know.
    fn is_done_in(&self, _thread: Pid) -> Option<bool> {
        None
    }

    /// The benchmark, where units are of one that runs once a slice.
    fn bench(&mut self) -> Option<&mut Bench> {
        None
    }
}

/// Sums over an experiment's ns stay finite for numbers up to this, either way.
const MOST: f64 = 1e100;

/// Whether a number of a metric's source can be counted with: it is neither infinite nor no number at all,
/// and its sums over time are not either.
fn is_countable(number: f64) -> bool {
    number.abs() <= MOST
}

/// All metrics of an experiment.
#[derive(Debug)]
pub struct Metrics {
    /// What verdicts go by.
    pub unit: Box<dyn Metric>,
    /// What is recorded beside it.
    pub further: Vec<Box<dyn Metric>>,
}

impl Metrics {
    /// Another session begins, whose counters begin at zero.
    ///
    /// # Errors
    /// It cannot be followed.
    pub fn begin(&mut self, session: &Controls) -> io::Result<()> {
        self.unit.begin(session)?;
        self.further.iter_mut().try_for_each(|metric| metric.begin(session))
    }
}
