//! Threads that set the pace. The sensitivity of all functions of a thread together is known sooner than that
//! of each one.

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF as _};

use super::{
    factor::{Estimate, Factor},
    findings::interval,
    replay::Replayed,
};
use crate::{
    chips::design::Estimated,
    printable::printable_name,
    record::{Measured, ThreadTime},
    units::Pid,
};

/// A thread that is busy for this share of the time, or more, hardly waits for anything.
const SATURATED: f64 = 0.95;
/// A thread sets the pace if this share of its delays shows, or more.
const SETS_PACE: f64 = 0.5;
/// Functions differ if chance alone makes such differences with a smaller probability than this (Cochran's
/// Q).
const DIFFER: f64 = 0.05;
/// One function says nothing about the rest of its thread.
const MIN_FUNCTIONS: usize = 2;

/// A thread, or several that do the same, with all of their functions that the experiment tested.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadFinding {
    /// The threads.
    pub threads: Vec<Pid>,
    /// What the first one calls itself; empty if unknown.
    pub name: String,
    /// The share of the time in which the least busy of them had work; `None` if unknown.
    pub busy: Option<f64>,
    /// The share of delays on it that shows up in the time per unit.
    pub sensitivity: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The gain if all its functions took no time, as a share of the time per unit: 1 at most.
    pub worth: Option<f64>,
    /// Whether all its functions may have the same sensitivity; `None` if too few have an estimate.
    pub alike: Option<bool>,
    /// Whether it sets the pace of units.
    pub sets_pace: bool,
    /// Its functions, by the numbers of their arms.
    #[serde(skip)]
    pub(super) arms: Vec<usize>,
}

impl ThreadFinding {
    /// `thread 4711 (model)`.
    pub(crate) fn who(&self) -> String {
        let who = match self.threads.as_slice() {
            [one] => format!("thread {one}"),
            several => format!("{} threads of the same functions", several.len()),
        };
        if self.name.is_empty() { who } else { format!("{who} ({})", printable_name(&self.name)) }
    }

    /// `sets the pace`.
    pub(crate) fn does(&self) -> &'static str {
        if self.threads.len() > 1 { "set the pace" } else { "sets the pace" }
    }
}

/// The findings about the threads of tested functions.
pub(super) fn threads(
    measured: &Measured,
    replayed: &Replayed,
    factors: &[Factor],
    unit: Option<f64>,
) -> Vec<ThreadFinding> {
    let mut groups: Vec<(Vec<Pid>, Vec<usize>)> = Vec::new();
    for (arm, sharing) in factors.iter().filter_map(|of| Some((of.arm?, of.sharing.as_ref()?))) {
        if sharing.threads.is_empty() {
            continue;
        }
        match groups.iter_mut().find(|(threads, _)| *threads == sharing.threads) {
            Some((_, arms)) => arms.push(arm),
            None => groups.push((sharing.threads.clone(), vec![arm])),
        }
    }
    let arms: Vec<Vec<usize>> = groups.iter().map(|(_, arms)| arms.clone()).collect();
    let Some(pooled) = replayed.design.together(&arms) else { return Vec::new() };
    let finding = |((threads, arms), pooled): ((Vec<Pid>, Vec<usize>), Estimated)| {
        let Estimate { sensitivity, low, high } = interval(pooled);
        let members = || factors.iter().filter(|of| of.arm.is_some_and(|arm| arms.contains(&arm)));
        let own: Option<f64> = members().map(|of| of.share(unit)).sum();
        let of: Vec<Option<&ThreadTime>> =
            threads.iter().map(|thread| measured.threads.iter().find(|of| of.thread == *thread)).collect();
        let busy = of.iter().map(|of| of.map(ThreadTime::busy)).collect::<Option<Vec<f64>>>();
        let busy = busy.and_then(|busy| busy.into_iter().reduce(f64::min));
        let found: Vec<Estimated> =
            arms.iter().filter_map(|arm| replayed.design.found()[*arm].estimated).collect();
        let alike = are_alike(&found);
        let is_saturated = busy.is_some_and(|busy| busy >= SATURATED);
        let sets_pace =
            arms.len() >= MIN_FUNCTIONS && low > SETS_PACE && (is_saturated || alike == Some(true));
        ThreadFinding {
            name: of.first().copied().flatten().map(|of| of.name.clone()).unwrap_or_default(),
            threads,
            busy,
            sensitivity,
            low,
            high,
            worth: own.map(|own| (own * sensitivity).min(1.0)),
            alike,
            sets_pace,
            arms,
        }
    };
    let mut found: Vec<ThreadFinding> = groups.into_iter().zip(pooled).map(finding).collect();
    found.sort_by(|a, b| b.worth.unwrap_or(0.0).total_cmp(&a.worth.unwrap_or(0.0)));
    found
}

/// Whether chance explains how these estimates differ (Cochran, Biometrics 10, 1954).
fn are_alike(found: &[Estimated]) -> Option<bool> {
    if found.len() < MIN_FUNCTIONS {
        return None;
    }
    let weight = |of: &Estimated| 1.0 / (of.error * of.error);
    let weights: f64 = found.iter().map(weight).sum();
    let mean = found.iter().map(|of| weight(of) * of.sensitivity).sum::<f64>() / weights;
    let q: f64 = found.iter().map(|of| weight(of) * (of.sensitivity - mean).powi(2)).sum();
    let distribution = ChiSquared::new(found.len() as f64 - 1.0).ok()?;
    Some(1.0 - distribution.cdf(q) > DIFFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimated(sensitivity: f64, error: f64) -> Estimated {
        Estimated { sensitivity, error, freedom: 100.0 }
    }

    #[test]
    fn functions_that_differ_are_told_apart() {
        assert_eq!(are_alike(&[estimated(1.0, 0.1), estimated(1.1, 0.1), estimated(0.9, 0.2)]), Some(true));
        assert_eq!(are_alike(&[estimated(1.0, 0.1), estimated(1.1, 0.1), estimated(0.0, 0.1)]), Some(false));
        // An estimate with a large error agrees with any other.
        assert_eq!(are_alike(&[estimated(1.0, 0.1), estimated(0.0, 2.0)]), Some(true));
        assert_eq!(are_alike(&[estimated(1.0, 0.1)]), None);
    }
}
