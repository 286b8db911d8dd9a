//! What the slices of the screen say of the functions that were not looked at alone.
//!
//! Each was delayed in a random half of those slices. What functions that stand out do is taken out of the
//! times first, by least squares; what is left of the difference between the halves is the function's. The
//! functions that go on to the next phase are chosen by these very slices, so that those that stay look a
//! little better than they are. A bound that holds for all of them at once, whichever are chosen, is not
//! fooled by that (Bonferroni).

use statrs::distribution::ContinuousCDF as _;

use super::{
    estimate::{Estimate, student},
    looks::ERROR,
};
use crate::experiment::{
    record::{Measured, PhaseKind, Slice, Treatment},
    schedule::MOST_SURVIVORS,
    screen::{centre, dot, screened, take_out, unit},
};

/// Fewer degrees of freedom say nothing.
const LEAST_FREEDOM: f64 = 20.0;

/// See above.
pub(super) struct OfScreen<'a> {
    measured: &'a Measured,
    slices: Vec<&'a Slice>,
    /// Time per unit by slice, without what blocks differ in and what stands out.
    times: Vec<f64>,
    /// What stands out, at right angles to each other.
    out: Vec<Vec<f64>>,
    /// Functions of the screen.
    functions: usize,
    freedom: f64,
}

impl<'a> OfScreen<'a> {
    pub(super) fn new(measured: &'a Measured) -> Self {
        let slices: Vec<&Slice> = measured
            .of_phase(PhaseKind::Screen)
            .filter(|slice| slice.treatment == Treatment::Several)
            .collect();
        let all = measured.candidates.len();
        let found = screened(measured.slices.iter(), all, MOST_SURVIVORS, measured.by).found;
        let mut doses: Vec<u32> =
            slices.iter().flat_map(|slice| slice.doses.iter().map(|(of, _)| *of)).collect();
        doses.sort_unstable();
        doses.dedup();
        let mut blocks: Vec<u32> = slices.iter().map(|slice| slice.block).collect();
        blocks.dedup();
        let mut of = Self {
            measured,
            slices,
            times: Vec::new(),
            out: Vec::new(),
            functions: doses.len(),
            freedom: 0.0,
        };
        let mut times: Vec<f64> = of.slices.iter().map(|slice| slice.time_per_unit(measured.by)).collect();
        of.within_blocks(&mut times);
        for (candidate, _) in found {
            let column = unit(&of.column(candidate));
            if column.iter().all(|value| value.is_finite()) {
                take_out(&mut times, &column);
                of.out.push(column);
            }
        }
        of.freedom = of.slices.len() as f64 - blocks.len() as f64 - of.out.len() as f64 - 1.0;
        of.times = times;
        of
    }

    /// The sensitivity, with an interval that holds the truth with this probability. `None` where the screen
    /// says nothing of it.
    pub(super) fn sensitivity(&self, candidate: u32, confidence: f64) -> Option<Estimate> {
        if self.freedom < LEAST_FREEDOM {
            return None;
        }
        let column = self.column(candidate);
        let squares = dot(&column, &column);
        let with = |slice: &&&Slice| slice.doses.iter().any(|(of, _)| *of == candidate);
        let planned: f64 = self.slices.iter().map(|slice| self.planned(slice, candidate)).sum();
        let arrived = |slice: &&Slice| {
            let of = slice.delivered.iter().find(|of| of.candidate == candidate);
            of.map_or(0.0, |of| of.delivered_ns.0 as f64 / slice.units.max(0.5))
        };
        let delivered: f64 = self.slices.iter().filter(with).map(arrived).sum();
        if squares <= 0.0 || delivered <= 0.0 || planned <= 0.0 {
            return None;
        }
        let slope = dot(&column, &self.times) / squares;
        let left = (dot(&self.times, &self.times) - slope * slope * squares).max(0.0);
        let quantile = student(self.freedom as usize)?.inverse_cdf(0.5 + confidence / 2.0);
        let half = quantile * (left / self.freedom / squares).sqrt();
        // By what arrived, and not by what was planned.
        let scale = planned / delivered;
        Some(Estimate {
            sensitivity: slope * scale,
            low: (slope - half) * scale,
            high: (slope + half) * scale,
        })
    }

    /// Where the sensitivities of all functions of the screen are at once, as far as one end of each
    /// interval goes.
    pub(super) fn bound(&self, candidate: u32) -> Option<Estimate> {
        self.sensitivity(candidate, 1.0 - 2.0 * ERROR / self.functions.max(1) as f64)
    }

    /// The delay per unit that a slice was planned to give a function.
    fn planned(&self, slice: &Slice, candidate: u32) -> f64 {
        let dose = slice.doses.iter().find(|(of, _)| *of == candidate);
        let calls = self.measured.candidates.get(candidate as usize);
        let calls = calls.map_or(0.0, |of| self.measured.calls_per_unit(of));
        dose.map_or(0.0, |(_, dose)| dose.0 as f64 * calls)
    }

    /// What a function was planned to be delayed, by slice, without what blocks differ in and what stands
    /// out.
    fn column(&self, candidate: u32) -> Vec<f64> {
        let mut column: Vec<f64> = self.slices.iter().map(|slice| self.planned(slice, candidate)).collect();
        self.within_blocks(&mut column);
        self.out.iter().for_each(|direction| take_out(&mut column, direction));
        column
    }

    /// Takes the mean of each block out.
    fn within_blocks(&self, values: &mut [f64]) {
        let mut start = 0;
        for block in self.slices.chunk_by(|a, b| a.block == b.block) {
            let end = start + block.len();
            if let Some(values) = values.get_mut(start..end) {
                centre(values);
            }
            start = end;
        }
    }
}
