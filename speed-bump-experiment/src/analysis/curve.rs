//! The dose curve of a function: how much longer units took with each of its delays.

use std::collections::BTreeMap;

use nalgebra::DMatrix;
use serde::Serialize;

use super::{findings::interval, replay::Chips};
use crate::{
    chips::{
        design::Estimated,
        regression::{Fitting, fit},
    },
    record::{Measured, PhaseKind},
};

/// Doses that differ by less than this factor are one.
const ALIKE: f64 = 1.2;
/// A dose with fewer chips says nothing.
const MIN_CHIPS: usize = 5;
/// A ladder has fewer doses.
const MAX_DOSES: usize = 200;
/// A dose is hidden if it is sure that less than this part of it shows.
const HIDDEN: f64 = 0.5;
/// An interval of 99.9 % is this many times as wide as one of 95 %. We need it because three functions have
/// thirty doses, and the ladder tests them after each round.
const OF_ALL: f64 = 1.7;

/// Time per unit against delay per unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// For each delay that was tried, the shortest first.
    pub doses: Vec<Dose>,
    /// Where it bends, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bend: Option<Bend>,
}

/// What a delay did. All in ns per unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dose {
    /// Delay per unit.
    pub delay_ns: f64,
    /// Time that came on top.
    pub time_ns: f64,
    /// The lower end of its 95 % interval.
    pub low_ns: Option<f64>,
    /// The upper end.
    pub high_ns: Option<f64>,
    /// Chips that had it.
    pub blocks: usize,
}

/// Where delay begins to show. All in ns per unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bend {
    /// The longest delay that stays hidden.
    pub slack_ns: f64,
    /// The longest delay that is sure to stay hidden.
    pub low_ns: f64,
    /// The shortest one that is sure to show.
    pub high_ns: f64,
    /// The share of the delay beyond it that shows.
    pub beyond: f64,
}

/// The curves of the arms that the ladder tried, by number. A unit takes `unit` ns.
pub(crate) fn curves(measured: &Measured, chips: &Chips, unit: f64) -> BTreeMap<usize, Curve> {
    // A chip has too few units for a quantile.
    if measured.by.quantile().is_some() {
        return BTreeMap::new();
    }
    let rungs: Vec<_> = measured
        .of_phase(PhaseKind::Ladder)
        // Delays that the bound on threads left out would look hidden.
        .filter(|slice| !slice.is_cut())
        .map(|slice| chips.chip(measured, slice, true))
        .filter(|chip| chip.doses.len() <= 1)
        .collect();
    // A column for each dose of each arm.
    let mut columns: Vec<(usize, f64, usize)> = Vec::new();
    let mut column_of = Vec::new();
    for chip in &rungs {
        let of = chip.doses.first().map(|(arm, dose)| {
            let is_it = |of: &(usize, f64, usize)| of.0 == *arm && of.1.max(*dose) < of.1.min(*dose) * ALIKE;
            // Beyond the limit there are no curves.
            let known = columns.iter().take(MAX_DOSES + 1).position(is_it);
            let column = known.unwrap_or_else(|| {
                columns.push((*arm, *dose, 0));
                columns.len() - 1
            });
            columns[column].2 += 1;
            column
        });
        column_of.push(of);
    }
    if columns.len() > MAX_DOSES {
        return BTreeMap::new();
    }
    let times: Vec<f64> = rungs.iter().map(|chip| chip.time).collect();
    let is_on = |row: usize, column: usize| f64::from(u8::from(column_of[row] == Some(column)));
    let on = DMatrix::from_fn(rungs.len(), columns.len(), is_on);
    let Some(fit) = fit(&times, &on, Fitting::USUAL) else { return BTreeMap::new() };
    let mut curves: BTreeMap<usize, Vec<Dose>> = BTreeMap::new();
    for (column, (arm, dose, blocks)) in columns.into_iter().enumerate() {
        if blocks < MIN_CHIPS {
            continue;
        }
        let (sensitivity, error) = (fit.estimates[column], fit.errors[column]);
        let found = interval(Estimated { sensitivity, error, freedom: fit.freedoms[column] });
        curves.entry(arm).or_default().push(Dose {
            delay_ns: dose * unit,
            time_ns: found.sensitivity * unit,
            low_ns: Some(found.low * unit),
            high_ns: Some(found.high * unit),
            blocks,
        });
    }
    let curve = |mut doses: Vec<Dose>| {
        doses.sort_by(|a, b| a.delay_ns.total_cmp(&b.delay_ns));
        let bend = bend(&doses);
        Curve { doses, bend }
    };
    curves.into_iter().map(|(arm, doses)| (arm, curve(doses))).collect()
}

impl Dose {
    /// The lower end of an interval that holds for all doses of a ladder together.
    fn low_of_all(&self) -> Option<f64> {
        self.low_ns.map(|low| self.time_ns - (self.time_ns - low) * OF_ALL)
    }

    /// The upper end.
    fn high_of_all(&self) -> Option<f64> {
        self.high_ns.map(|high| self.time_ns + (high - self.time_ns) * OF_ALL)
    }

    /// Whether it is sure that less than half of the dose shows.
    fn is_hidden(&self) -> bool {
        self.high_of_all().is_some_and(|high| high < HIDDEN * self.delay_ns)
    }

    /// Whether it is sure that more than this part of the dose shows.
    pub(crate) fn shows(&self, part: f64) -> bool {
        self.low_of_all().is_some_and(|low| low > part * self.delay_ns)
    }

    /// Whether it is sure that units took less time with the dose: no delay does that.
    fn is_faster(&self) -> bool {
        self.high_of_all().is_some_and(|high| high < 0.0)
    }
}

/// The longest dose that is sure to be hidden. `None` if there is none, or if a shorter dose is sure to show.
/// Doses are sorted by length.
fn longest_hidden(doses: &[Dose]) -> Option<&Dose> {
    let last = doses.iter().rposition(Dose::is_hidden)?;
    let (before, _) = doses.split_at(last);
    doses.get(last).filter(|_| !before.iter().any(|dose| dose.shows(HIDDEN)))
}

impl Curve {
    /// The longest delay that was tried and stayed hidden.
    pub(super) fn longest_hidden(&self) -> Option<f64> {
        longest_hidden(&self.doses).map(|dose| dose.delay_ns)
    }
}

/// The bend: it lies between the longest dose that is sure to be hidden and the shortest longer one that is
/// sure to show. If units were faster with a dose, something else than doses changed their time: nothing is
/// known then.
fn bend(doses: &[Dose]) -> Option<Bend> {
    if doses.iter().any(Dose::is_faster) {
        return None;
    }
    let hidden = longest_hidden(doses)?;
    let showing = doses.iter().find(|of| of.delay_ns > hidden.delay_ns && of.shows(0.0))?;
    let last = doses.last()?;
    let beyond = (last.time_ns - hidden.time_ns) / (last.delay_ns - hidden.delay_ns);
    // A line through the shortest dose that shows, with the slope of all doses beyond it.
    let slack = (showing.delay_ns - showing.time_ns / beyond.max(f64::MIN_POSITIVE))
        .clamp(hidden.delay_ns, showing.delay_ns);
    Some(Bend { slack_ns: slack, low_ns: hidden.delay_ns, high_ns: showing.delay_ns, beyond })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A dose, what came on top, and by how much that may be off, with 95 % confidence.
    fn doses(of: &[(f64, f64, f64)]) -> Vec<Dose> {
        let dose = |(delay_ns, time_ns, off): &(f64, f64, f64)| Dose {
            delay_ns: *delay_ns,
            time_ns: *time_ns,
            low_ns: Some(time_ns - off),
            high_ns: Some(time_ns + off),
            blocks: 20,
        };
        of.iter().map(dose).collect()
    }

    #[test]
    fn a_curve_bends_between_what_is_hidden_and_what_shows() {
        let bend = bend(&doses(&[(1e6, 0.0, 1e5), (3e6, 1.8e6, 1e5), (4e6, 2.8e6, 1e5)])).unwrap();
        assert_eq!((bend.low_ns, bend.high_ns), (1e6, 3e6));
        assert!((1.0e6..1.3e6).contains(&bend.slack_ns), "{bend:?}");
        assert!((0.9..1.1).contains(&bend.beyond), "{bend:?}");
    }

    #[test]
    fn what_may_be_chance_bends_no_curve() {
        // One dose in twenty shows by chance with 95 % confidence.
        assert_eq!(bend(&doses(&[(1e6, 0.0, 1e5), (2e6, 3e5, 2e5)])), None);
        assert_eq!(bend(&doses(&[(1e6, 0.0, 1e5)])), None);
        assert_eq!(bend(&doses(&[(1e6, 9e5, 1e5), (2e6, 1.9e6, 1e5)])), None, "all of it shows");
    }

    #[test]
    fn units_that_were_faster_with_a_delay_withhold_the_bend() {
        let with = |first: f64| bend(&doses(&[(1e6, first, 1e5), (2e6, 0.0, 1e5), (3e6, 2e6, 1e5)]));
        assert!(with(-1e5).is_some());
        assert_eq!(with(-5e5), None);
    }
}
