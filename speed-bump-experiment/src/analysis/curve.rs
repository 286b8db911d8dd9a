//! The dose curve of a function: how much longer units took with each of its delays.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    contrast::{Contrast, contrasts},
    estimate::estimate,
    findings::CONFIDENCE,
    hinge::Hinge,
};
use crate::record::{Measured, PhaseKind, Treatment};

/// Delays that are told apart.
const MAX: usize = 12;
/// Delays that differ by less than this factor are one: what a call makes of a unit's share varies a little.
const ALIKE: f64 = 1.2;

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
    /// Delay that was delivered, the mean of its blocks.
    pub delay_ns: f64,
    /// Time that came on top.
    pub time_ns: f64,
    /// The lower end of its 95 % interval; `None` of too few blocks.
    pub low_ns: Option<f64>,
    /// The upper end.
    pub high_ns: Option<f64>,
    /// Blocks that had it.
    pub blocks: usize,
}

/// Where delay begins to show. All in ns per unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bend {
    /// Delay that stays hidden.
    pub slack_ns: f64,
    /// The lower end of its 95 % interval.
    pub low_ns: f64,
    /// The upper end.
    pub high_ns: f64,
    /// The share of the delay beyond it that shows.
    pub beyond: f64,
}

impl From<Hinge> for Bend {
    fn from(of: Hinge) -> Self {
        Self { slack_ns: of.slack, low_ns: of.low, high_ns: of.high, beyond: of.beyond }
    }
}

/// The curve of a treatment of the last phase; `None` where it has no blocks.
pub(super) fn curve(measured: &Measured, treatment: Treatment, bend: Option<Hinge>) -> Option<Curve> {
    let slices = || measured.of_phase(PhaseKind::Confirm);
    // The delay of a call of its first function tells doses apart: they are set, and not measured.
    let asked: BTreeMap<u32, u64> = slices()
        .filter(|slice| slice.treatment == treatment)
        .filter_map(|slice| Some((slice.block, slice.doses.first()?.1.0)))
        .collect();
    let contrasts = contrasts(slices(), treatment, u32::MAX, measured.by);
    let mut of_dose: Vec<(u64, Contrast)> =
        contrasts.into_iter().filter_map(|of| Some((*asked.get(&of.block)?, of))).collect();
    of_dose.sort_by_key(|(asked, _)| *asked);
    let alike = of_dose.chunk_by(|(one, _), (next, _)| *next as f64 <= *one as f64 * ALIKE);
    let mut doses: Vec<Dose> =
        alike.map(|of| dose(&of.iter().map(|(_, of)| *of).collect::<Vec<_>>())).collect();
    // Guards halve doses again and again: the ones that were tried most say most.
    if doses.len() > MAX {
        doses.sort_by_key(|of| std::cmp::Reverse(of.blocks));
        doses.truncate(MAX);
    }
    doses.sort_by(|a, b| a.delay_ns.total_cmp(&b.delay_ns));
    (!doses.is_empty()).then(|| Curve { doses, bend: bend.map(Bend::from) })
}

fn dose(blocks: &[Contrast]) -> Dose {
    let mean = |of: fn(&Contrast) -> f64| blocks.iter().map(of).sum::<f64>() / blocks.len() as f64;
    let delay_ns = mean(|of| of.delay);
    let found = estimate(blocks, CONFIDENCE);
    Dose {
        delay_ns,
        time_ns: found.map_or_else(|| mean(|of| of.time), |found| found.sensitivity * delay_ns),
        low_ns: found.map(|found| found.low * delay_ns),
        high_ns: found.map(|found| found.high * delay_ns),
        blocks: blocks.len(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{simulated::Function, testing, units::Nanos};

    #[test]
    fn each_dose_is_told_with_its_interval() {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let mut measured = testing::measured(&[("render", function, 3_000)]);
        let treatment = Treatment::Function { candidate: 0 };
        let mut second = 1;
        for block in 0..20 {
            // Units of 10 ms; with 1 ms more in even blocks and 2 ms more in odd ones.
            let ms = 1 + u64::from(block % 2);
            let units = 1_000.0 / (10.0 + ms as f64);
            let noise = 0.01 * f64::from(block % 3);
            for (treatment, units, delay) in
                [(Treatment::Control, 100.0 + noise, 0), (treatment, units, (units * ms as f64 * 1e6) as u64)]
            {
                let mut slice = testing::slice(PhaseKind::Confirm, block, treatment, units, delay);
                slice.doses.iter_mut().for_each(|(_, dose)| *dose = Nanos(ms * 1_000_000));
                measured.slices.push(testing::at(second, slice));
                second += 1;
            }
        }
        let found = curve(&measured, treatment, None).unwrap();
        assert_eq!(found.doses.iter().map(|of| of.blocks).collect::<Vec<_>>(), [10, 10]);
        for (dose, ms) in found.doses.iter().zip([1.0, 2.0]) {
            assert!((dose.delay_ns / 1e6 - ms).abs() < 0.01, "{dose:?}");
            assert!((dose.time_ns / 1e6 - ms).abs() < 0.01, "{dose:?}");
            assert!(dose.low_ns.unwrap() <= dose.time_ns && dose.time_ns <= dose.high_ns.unwrap());
        }
        assert_eq!(curve(&measured, Treatment::Rest, None), None);
    }
}
