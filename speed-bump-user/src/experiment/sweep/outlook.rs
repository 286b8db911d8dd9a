//! The outlook of a sweep, for `--plan`.

use crate::{
    experiment::{
        plan::Plan,
        record::Measured,
        run::{self, Pace},
    },
    units::Nanos,
};

/// What a sweep would do.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// Functions that are worth an experiment.
    pub functions: usize,
    /// All counted functions.
    pub candidates: usize,
    /// Time per unit.
    pub unit: Nanos,
    /// The plan, with its precision.
    pub plan: Plan,
}

impl Outlook {
    /// The outlook with these parameters, and this number of units in progress, if it is known.
    pub(super) fn new(options: &run::Options, measured: &Measured, under_way: Option<f64>) -> Self {
        let unit = measured.census.time_per_unit();
        let plan = Plan::new(options, measured, Pace { unit, under_way });
        let functions = plan.asked.len();
        Self { functions, candidates: measured.candidates.len(), unit: Nanos(unit as u64), plan }
    }
}
