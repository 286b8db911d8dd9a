//! What the slices of the screen say of the functions that were not looked at alone.
//!
//! Each was delayed in a random half of those slices that have delays. What functions that stand out do is
//! taken out of the times first, by least squares, and then what all others do together: a slice without the
//! function has more of the others, so that the difference between the halves is only what it does more than
//! they. The slices without delays tell how much that is. The functions that go on to the next phase are
//! chosen by these very slices, so that those that stay look a little better than they are. A bound that
//! holds for all of them at once, whichever are chosen, is not fooled by that (Bonferroni).

use std::collections::BTreeMap;

use statrs::distribution::ContinuousCDF as _;

use super::{
    estimate::{Estimate, student},
    interim::ERROR,
};
use crate::{
    record::{Measured, PhaseKind},
    schedule::MAX_SURVIVORS,
    screen::{Row, dot, rows, screened, take_out, unit},
};

/// Less than this part of the squares of a function's delays is rounding: it is among those that stand out.
const EXPLAINED: f64 = 1e-9;
/// Fewer degrees of freedom say nothing.
const MIN_FREEDOM: f64 = 20.0;

/// See above.
pub(super) struct OfScreen {
    /// What a function was delayed, by its number.
    delays: BTreeMap<u32, Delays>,
    /// Time per unit that came on top, by slice, without what stands out.
    times: Vec<f64>,
    /// What stands out, at right angles to each other.
    out: Vec<Vec<f64>>,
    /// The delays of all functions but those that stand out, by slice.
    all: Vec<f64>,
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
        let rows = rows(measured.of_phase(PhaseKind::Screen), measured.by);
        let delays = delays(measured, &rows);
        let all = measured.candidates.len();
        let found = screened(&rows, all, MAX_SURVIVORS).found;
        let mut of = Self {
            all: vec![0.0; rows.len()],
            times: rows.into_iter().map(|row| row.time).collect(),
            delays,
            out: Vec::new(),
            freedom: 0.0,
        };
        for (candidate, delays) in &of.delays {
            if !found.iter().any(|(of, _)| of == candidate) {
                of.all.iter_mut().zip(&delays.planned).for_each(|(all, delay)| *all += delay);
            }
        }
        for (candidate, _) in found {
            let Some(delays) = of.delays.get(&candidate) else { continue };
            let column = unit(&of.rest_of(delays.planned.clone()));
            if column.iter().all(|value| value.is_finite()) {
                take_out(&mut of.times, &column);
                of.out.push(column);
            }
        }
        of.freedom = of.times.len() as f64 - of.out.len() as f64 - 2.0;
        of
    }

    /// What a function does; `None` where the screen says nothing of it.
    pub(super) fn effect(&self, candidate: u32) -> Option<Effect> {
        let delays = self.delays.get(&candidate)?;
        let mut own = self.rest_of(delays.planned.clone());
        let is_out = dot(&own, &own) <= EXPLAINED * dot(&delays.planned, &delays.planned);
        let others = self.all.iter().zip(&delays.planned).map(|(all, own)| all - own);
        let others = unit(&self.rest_of(others.collect()));
        let mut times = self.times.clone();
        if others.iter().all(|value| value.is_finite()) {
            take_out(&mut own, &others);
            take_out(&mut times, &others);
        }
        let squares = dot(&own, &own);
        let planned: f64 = delays.planned.iter().sum();
        let says_nothing = is_out || squares <= 0.0 || delays.arrived <= 0.0 || planned <= 0.0;
        if self.freedom < MIN_FREEDOM || says_nothing {
            return None;
        }
        let slope = dot(&own, &times) / squares;
        let left = (dot(&times, &times) - slope * slope * squares).max(0.0);
        // By what arrived, and not by what was planned.
        let scale = planned / delays.arrived;
        Some(Effect {
            sensitivity: slope * scale,
            error: (left / self.freedom / squares).sqrt() * scale,
            freedom: self.freedom,
            functions: self.delays.len(),
        })
    }

    /// What of delays is left without what stands out.
    fn rest_of(&self, mut delays: Vec<f64>) -> Vec<f64> {
        self.out.iter().for_each(|direction| take_out(&mut delays, direction));
        delays
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
fn delays(measured: &Measured, rows: &[Row]) -> BTreeMap<u32, Delays> {
    let mut delays: BTreeMap<u32, Delays> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        for (candidate, dose) in &row.doses {
            let none = || Delays { planned: vec![0.0; rows.len()], arrived: 0.0 };
            let calls = measured.candidates.get(*candidate as usize);
            let calls = calls.map_or(0.0, |of| measured.calls_per_unit(of));
            delays.entry(*candidate).or_insert_with(none).planned[index] = dose.0 as f64 * calls;
        }
    }
    for slice in measured.of_phase(PhaseKind::Screen) {
        for delivered in &slice.delivered {
            if let Some(of) = delays.get_mut(&delivered.candidate) {
                of.arrived += delivered.delivered_ns.0 as f64 / slice.units.max(0.5);
            }
        }
    }
    delays
}
