//! Calls of a function as units of work.

use std::io;

use super::{Metric, Reading};
use crate::{session::snapshot::Snapshot, targets::TargetIndex};

/// Calls of all functions of a target, and where the session times them, how long they take.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// The target.
    pub target: TargetIndex,
}

impl Metric for Calls {
    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading> {
        Ok(self.of(snapshot))
    }
}

impl Calls {
    /// What a snapshot has of them.
    pub fn of(self, snapshot: &Snapshot) -> Reading {
        let of = snapshot.known.iter().filter(|(_, function)| function.target == self.target);
        let mut reading = Reading::default();
        for (id, _) in of {
            reading.units += snapshot.of_id(id).calls as f64;
            if let Some(times) = snapshot.times_of(id) {
                *reading.latency.get_or_insert(0.0) += times.cumulative_ns as f64;
            }
        }
        reading
    }
}
