//! The first phase: measures the time per unit without delays, and how much it varies.

use super::{Runner, Stop, steps::Steps};
use crate::{
    record::{Mark, PhaseKind, Slice, Treatment},
    units::Nanos,
};

/// The least number of slices before the first delay.
pub(super) const CENSUS_SLICES: u32 = 8;
/// The least number of slices before the first delay if each slice is a run of a benchmark.
const CENSUS_RUNS: u32 = 4;
/// The most rounds of slices that wait for the service to settle.
const CENSUS_ROUNDS: u32 = 3;
/// A service has not settled if units take more or less time, by this share, in the second half of a round.
const UNSETTLED: f64 = 0.03;
/// A service has settled if that difference is less than this many standard errors.
const UNSETTLED_ERRORS: f64 = 4.0;
/// The least noise that is assumed: a few slices may be alike by chance.
const MIN_NOISE: f64 = 0.005;

impl Runner<'_> {
    /// Measures the time per unit without delays, and how much it varies. Starts again while the service
    /// still changes by itself.
    pub(super) fn census(&mut self) -> Result<(), Stop> {
        self.begin_phase(PhaseKind::Census, self.times.census);
        let least = if self.options.runs { CENSUS_RUNS } else { CENSUS_SLICES };
        let slices = self.times.slices_in(self.times.census).max(least);
        // Runs of a benchmark are long, and each begins anew.
        let rounds = if self.options.runs { 1 } else { CENSUS_ROUNDS };
        let mut block = 0;
        let mut change = None;
        for round in 1..=rounds {
            let first = self.measured.slices.len();
            let mut steps = Steps::default();
            for _ in 0..slices {
                if round == 1 {
                    self.control_of_census(block, &mut steps)?;
                } else {
                    self.slice(block, Treatment::Control, &[])?;
                }
                block += 1;
            }
            if round == 1 {
                self.check_steps(&steps, slices)?;
                if rounds > 1 && !self.was_under_load(block, first)? {
                    self.mark_unsettled(first);
                    continue;
                }
            }
            self.learn_unit(PhaseKind::Census);
            self.noise = self.noise(PhaseKind::Census).max(MIN_NOISE);
            change = self.change_since(first);
            if change.is_none() || round == rounds {
                break;
            }
            self.mark_unsettled(first);
        }
        // A sum without any slice is -0.0.
        let units = self.measured.of_phase(PhaseKind::Census).map(|slice| slice.units).sum::<f64>().abs();
        let in_slice = units / self.measured.of_phase(PhaseKind::Census).count().max(1) as f64;
        let census = &mut self.measured.census;
        census.slowdown = Some(census.time_per_unit() / self.pace - 1.0);
        if let Some(sampling) = &mut self.measured.sampling {
            sampling.slowdown = sampling.time_per_unit_ns.map(|time| time / self.pace - 1.0);
        }
        let rounds = block / slices;
        let settled = match change {
            Some(change) => format!(
                "; it had not settled after {rounds} rounds: {:+.0} % time in the second half of the last \
                 one",
                change * 100.0
            ),
            None if rounds > 1 => format!("; it had settled in round {rounds}"),
            None => String::new(),
        };
        let unit = Nanos(self.unit as u64);
        let takes = match self.measured.by.quantile() {
            None => format!("a unit takes {unit}"),
            Some(share) => format!("{:.0} of 100 units take {unit} at most", share * 100.0),
        };
        self.end_phase(&format!(
            "{takes}; {in_slice:.0} in a slice, which vary by {:.1} %{settled}",
            self.noise * 100.0
        ));
        Ok(())
    }

    /// Marks slices of the census, from this one on, as unsettled: they do not count.
    fn mark_unsettled(&mut self, first: usize) {
        let unsettled = self.measured.slices.iter_mut().skip(first);
        unsettled.filter(|slice| slice.counts()).for_each(|slice| slice.marks.push(Mark::Unsettled));
    }

    /// By what share units took longer in the second half of the slices from this one on; `None` if that may
    /// be noise.
    fn change_since(&self, first: usize) -> Option<f64> {
        let of: Vec<&Slice> =
            self.measured.slices.iter().skip(first).filter(|slice| slice.counts()).collect();
        let (one, other) = of.split_at(of.len() / 2);
        let half = |slices: &[&Slice]| {
            let times: Vec<f64> = slices.iter().map(|slice| slice.time_per_unit(self.measured.by)).collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
            (mean, squares / (times.len() as f64 - 1.0).max(1.0) / times.len() as f64)
        };
        let ((before, error_before), (after, error_after)) = (half(one), half(other));
        let error = (error_before + error_after).sqrt();
        let change = after / before - 1.0;
        (change.abs() > UNSETTLED && (after - before).abs() > UNSETTLED_ERRORS * error).then_some(change)
    }
}
