//! Calls of a function as units of work.

use std::io;

use super::{Metric, Reading};
use crate::{
    experiment::record::{By, Quantity},
    session::{controls::Controls, snapshot::Snapshot},
    targets::TargetIndex,
};

/// Calls of all functions of a target and, if the session times them, how long they take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// The target's number among the targets of metrics.
    number: TargetIndex,
    /// The target's number in the session.
    target: TargetIndex,
    /// What to compare: how many calls there are, or how long they take.
    by: By,
    /// Whether calls may be timed now. If not, the session still has sums from the time in which calls were
    /// timed.
    may_be_timed: bool,
}

impl Calls {
    /// Calls of the target with this number among the targets of metrics. A session that begins with the
    /// targets of metrics has them in the same places.
    pub(crate) fn new(number: TargetIndex, by: By) -> Self {
        Self { number, target: number, by, may_be_timed: true }
    }
}

impl Metric for Calls {
    fn unit(&self) -> Option<&'static str> {
        Some("call")
    }

    fn by(&self) -> By {
        self.by
    }

    fn has(&self, quantity: Quantity) -> bool {
        quantity == Quantity::Rate || (quantity == Quantity::Latency && self.times_calls())
    }

    fn target(&self) -> Option<TargetIndex> {
        Some(self.target)
    }

    fn times_calls(&self) -> bool {
        self.by == By::Latency
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn is_early(&self) -> bool {
        true
    }

    fn begin(&mut self, _session: &Controls, places: &[TargetIndex]) -> io::Result<()> {
        self.target = place(places, self.number);
        Ok(())
    }

    fn census_is_over(&mut self) {
        self.may_be_timed = self.times_calls();
    }

    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading> {
        let reading = calls_of_target(snapshot, self.target);
        Ok(Reading { latency: reading.latency.filter(|_| self.may_be_timed), ..reading })
    }
}

/// The place in a session of the target with this number among the targets of metrics.
pub(super) fn place(places: &[TargetIndex], number: TargetIndex) -> TargetIndex {
    places.get(number.0 as usize).copied().unwrap_or(number)
}

/// Calls of all functions of a target in a snapshot.
pub(super) fn calls_of_target(snapshot: &Snapshot, target: TargetIndex) -> Reading {
    let of = snapshot.known.iter().filter(|(_, function)| function.target == target);
    let mut reading = Reading::default();
    for (id, _) in of {
        reading.units += snapshot.of_id(id).calls as f64;
        if let Some(times) = snapshot.times_of(id) {
            *reading.latency.get_or_insert(0.0) += times.cumulative_ns as f64;
        }
    }
    reading
}
