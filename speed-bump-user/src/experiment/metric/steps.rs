//! Calls that each long unit makes equally often, as units.

use std::io;

use super::{Metric, OpenError, Reading, calls::Calls};
use crate::{
    experiment::record::{InnerUnit, StepsOfUnits},
    probe::plan::SelectedFunction,
    session::{controls::Controls, snapshot::Snapshot},
    targets::TargetIndex,
    units::Pid,
};

/// Steps, beside the metric of the longer units that make them.
#[derive(Debug)]
pub(crate) struct StepsInside {
    steps: Steps,
    longer: Box<dyn Metric>,
    /// What is known of the longer units. The experiment's part comes with readings.
    inner: InnerUnit,
    ends: Ends,
}

/// The calls that are steps.
#[derive(Debug)]
pub(crate) enum Steps {
    /// Calls of a target of metrics.
    Target(Calls),
    /// Calls of a function that is tried.
    Function(SelectedFunction),
}

/// The longer units and their steps when the first and the last of these units ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    latest_units: Option<f64>,
    first: Option<(f64, f64)>,
    last: Option<(f64, f64)>,
    /// The least and the most steps of a unit.
    between: Option<[f64; 2]>,
}

impl Ends {
    /// Adds a reading of longer units and of steps.
    pub(crate) fn add(&mut self, units: f64, steps: f64) {
        let has_ended = self.latest_units.replace(units).is_some_and(|before| units > before);
        if !has_ended {
            return;
        }
        self.first.get_or_insert((units, steps));
        if let Some((units_then, steps_then)) = self.last.replace((units, steps)) {
            let of_one = (steps - steps_then) / (units - units_then);
            let [least, most] = self.between.unwrap_or([of_one, of_one]);
            self.between = Some([least.min(of_one), most.max(of_one)]);
        }
    }

    /// The steps of the longer units. `None` before two of these have ended, at different times.
    pub(crate) fn steps_of_units(&self) -> Option<StepsOfUnits> {
        let ((first_units, first_steps), (last_units, last_steps)) = self.first.zip(self.last)?;
        let (units, steps) = (last_units - first_units, last_steps - first_steps);
        Some(StepsOfUnits { units, steps, between: self.between? })
    }
}

impl StepsInside {
    /// Calls that the units of `longer` make.
    pub(crate) fn new(steps: Steps, longer: Box<dyn Metric>, inner: InnerUnit) -> Self {
        Self { steps, longer, inner, ends: Ends::default() }
    }
}

impl Metric for StepsInside {
    fn unit(&self) -> Option<&'static str> {
        Some("call")
    }

    fn target(&self) -> Option<TargetIndex> {
        match &self.steps {
            Steps::Target(calls) => calls.target(),
            Steps::Function(_) => self.longer.target(),
        }
    }

    fn longer_target(&self) -> Option<TargetIndex> {
        self.longer.target()
    }

    fn is_quick(&self) -> bool {
        self.longer.is_quick()
    }

    fn open(&mut self) -> Result<(), OpenError> {
        self.longer.open()
    }

    fn begin(&mut self, session: &Controls, places: &[TargetIndex]) -> io::Result<()> {
        if let Steps::Target(calls) = &mut self.steps {
            calls.begin(session, places)?;
        }
        self.longer.begin(session, places)
    }

    fn census_is_over(&mut self) {
        self.longer.census_is_over();
    }

    fn is_done_in(&self, thread: Pid) -> Option<bool> {
        self.longer.is_done_in(thread)
    }

    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading> {
        let longer = self.longer.read(snapshot)?;
        let steps = match &mut self.steps {
            Steps::Target(calls) => calls.read(snapshot)?.units,
            Steps::Function(function) => snapshot.stats_of(function).calls as f64,
        };
        self.ends.add(longer.units, steps);
        // Latencies are of the longer units.
        Ok(Reading { units: steps, failed: longer.failed, under_way: longer.under_way, ..Reading::default() })
    }

    fn inner_unit(&self) -> Option<InnerUnit> {
        Some(InnerUnit { experiment: self.ends.steps_of_units(), ..self.inner.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_from_the_end_of_a_unit_to_the_end_of_another() {
        let mut ends = Ends::default();
        for (units, steps) in [(5.0, 100.0), (5.0, 107.0), (6.0, 110.0), (6.0, 120.0)] {
            ends.add(units, steps);
        }
        assert_eq!(ends.steps_of_units(), None, "only one unit ended");
        for (units, steps) in [(8.0, 142.0), (8.0, 150.0)] {
            ends.add(units, steps);
        }
        assert_eq!(
            ends.steps_of_units(),
            Some(StepsOfUnits { units: 2.0, steps: 32.0, between: [16.0, 16.0] })
        );
        ends.add(9.0, 160.0);
        assert_eq!(ends.steps_of_units().map(|of| of.between), Some([16.0, 18.0]));
    }
}
