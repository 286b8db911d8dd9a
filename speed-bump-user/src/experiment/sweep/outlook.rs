//! The outlook of a sweep, for `--plan`.

use std::time::Duration;

use super::options::Options;
use crate::{
    experiment::{plan::Plan, record::Measured, run::confirm::BASIC, schedule::Pace},
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
    /// The outlook with this time left, and this number of units in progress, if it is known.
    pub(super) fn new(
        options: &Options,
        measured: &Measured,
        left: Duration,
        under_way: Option<f64>,
    ) -> Self {
        let unit = measured.census.time_per_unit();
        let functions = measured.worth_it(unit).count();
        let basic = BASIC * options.max_slowdown;
        let pace = Pace { unit, under_way };
        let plan = Plan::of(left, functions, options.per_function, pace, options.slice, basic);
        Self { functions, candidates: measured.candidates.len(), unit: Nanos(unit as u64), plan }
    }
}
