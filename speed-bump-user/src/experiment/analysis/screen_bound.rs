//! What the slices of the screen say of the functions that were not looked at alone.
//!
//! Each was delayed in a random half of those slices. What functions that stand out do is taken out of the
//! times first, by least squares; what is left of the difference between the halves is the function's. The
//! functions that go on to the next phase are chosen by these very slices, so that those that stay look a
//! little better than they are. A bound that holds for all of them at once, whichever are chosen, is not
//! fooled by that (Bonferroni).

use std::collections::BTreeMap;

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
pub(super) struct OfScreen {
    /// What a function was delayed, by its number.
    delays: BTreeMap<u32, Delays>,
    /// How many slices each block has, in their order.
    blocks: Vec<usize>,
    /// Time per unit by slice, without what blocks differ in and what stands out.
    times: Vec<f64>,
    /// What stands out, at right angles to each other.
    out: Vec<Vec<f64>>,
    freedom: f64,
}

/// Delays per unit of a function.
struct Delays {
    /// What each slice was planned to give.
    planned: Vec<f64>,
    /// What arrived, in all slices.
    arrived: f64,
}

/// What a function does, before it is asked how sure that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    sensitivity: f64,
    error: f64,
    freedom: f64,
    /// Functions of the screen.
    functions: usize,
}

impl OfScreen {
    pub(super) fn new(measured: &Measured) -> Self {
        let slices: Vec<&Slice> = measured
            .of_phase(PhaseKind::Screen)
            .filter(|slice| slice.treatment == Treatment::Several)
            .collect();
        let blocks = slices.chunk_by(|a, b| a.block == b.block).map(<[_]>::len).collect();
        let times = slices.iter().map(|slice| slice.time_per_unit(measured.by)).collect();
        let delays = delays(measured, &slices);
        let mut of = Self { delays, blocks, times, out: Vec::new(), freedom: 0.0 };
        let mut times = std::mem::take(&mut of.times);
        of.within_blocks(&mut times);
        let all = measured.candidates.len();
        for (candidate, _) in screened(measured.slices.iter(), all, MOST_SURVIVORS, measured.by).found {
            let Some(column) = of.column(candidate).map(|column| unit(&column)) else { continue };
            if column.iter().all(|value| value.is_finite()) {
                take_out(&mut times, &column);
                of.out.push(column);
            }
        }
        of.freedom = times.len() as f64 - of.blocks.len() as f64 - of.out.len() as f64 - 1.0;
        of.times = times;
        of
    }

    /// What a function does; `None` where the screen says nothing of it.
    pub(super) fn effect(&self, candidate: u32) -> Option<Effect> {
        let delays = self.delays.get(&candidate)?;
        let column = self.column(candidate)?;
        let squares = dot(&column, &column);
        let planned: f64 = delays.planned.iter().sum();
        if self.freedom < LEAST_FREEDOM || squares <= 0.0 || delays.arrived <= 0.0 || planned <= 0.0 {
            return None;
        }
        let slope = dot(&column, &self.times) / squares;
        let left = (dot(&self.times, &self.times) - slope * slope * squares).max(0.0);
        // By what arrived, and not by what was planned.
        let scale = planned / delays.arrived;
        Some(Effect {
            sensitivity: slope * scale,
            error: (left / self.freedom / squares).sqrt() * scale,
            freedom: self.freedom,
            functions: self.delays.len(),
        })
    }

    /// What a function was planned to be delayed, by slice, without what blocks differ in and what stands
    /// out.
    fn column(&self, candidate: u32) -> Option<Vec<f64>> {
        let mut column = self.delays.get(&candidate)?.planned.clone();
        self.within_blocks(&mut column);
        self.out.iter().for_each(|direction| take_out(&mut column, direction));
        Some(column)
    }

    /// Takes the mean of each block out.
    fn within_blocks(&self, values: &mut [f64]) {
        let mut rest = values;
        for slices in &self.blocks {
            let Some((block, after)) = rest.split_at_mut_checked(*slices) else { return };
            centre(block);
            rest = after;
        }
    }
}

impl Effect {
    /// Where the sensitivity is with this probability.
    pub(super) fn interval(&self, confidence: f64) -> Option<Estimate> {
        let half = student(self.freedom as usize)?.inverse_cdf(0.5 + confidence / 2.0) * self.error;
        let Self { sensitivity, .. } = *self;
        Some(Estimate { sensitivity, low: sensitivity - half, high: sensitivity + half })
    }

    /// Where the sensitivities of all functions of the screen are at once, as far as one end of each
    /// interval goes.
    pub(super) fn bound(&self) -> Option<Estimate> {
        self.interval(1.0 - 2.0 * ERROR / self.functions as f64)
    }
}

/// What slices were planned to give functions, and gave.
fn delays(measured: &Measured, slices: &[&Slice]) -> BTreeMap<u32, Delays> {
    let mut delays: BTreeMap<u32, Delays> = BTreeMap::new();
    for (row, slice) in slices.iter().enumerate() {
        for (candidate, dose) in &slice.doses {
            let none = || Delays { planned: vec![0.0; slices.len()], arrived: 0.0 };
            let calls = measured.candidates.get(*candidate as usize);
            let calls = calls.map_or(0.0, |of| measured.calls_per_unit(of));
            delays.entry(*candidate).or_insert_with(none).planned[row] = dose.0 as f64 * calls;
        }
        for delivered in &slice.delivered {
            if let Some(of) = delays.get_mut(&delivered.candidate) {
                of.arrived += delivered.delivered_ns.0 as f64 / slice.units.max(0.5);
            }
        }
    }
    delays
}
