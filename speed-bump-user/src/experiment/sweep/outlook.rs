//! What a sweep would do.

use std::time::Duration;

use super::options::Options;
use crate::{
    experiment::{plan::Plan, record::Measured, run::confirm::BASIC, schedule::Pace},
    units::Nanos,
};

/// What a sweep would do with the functions that are worth an experiment.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// Functions that are worth an experiment.
    pub functions: usize,
    /// All functions that were counted.
    pub candidates: usize,
    /// What a unit takes.
    pub unit: Nanos,
    /// What would be done, and how sure it would be.
    pub plan: Plan,
}

impl Outlook {
    /// With so much time left, and so many units under way at once, where that counts.
    pub(super) fn of(options: &Options, measured: &Measured, left: Duration, under_way: Option<f64>) -> Self {
        let unit = measured.census.time_per_unit();
        let functions = measured.worth_it(unit).count();
        let basic = BASIC * options.max_slowdown;
        let pace = Pace { unit, under_way };
        let plan = Plan::of(left, functions, options.per_function, pace, options.slice, basic);
        Self { functions, candidates: measured.candidates.len(), unit: Nanos(unit as u64), plan }
    }
}
