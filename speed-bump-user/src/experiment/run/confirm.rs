//! Few functions, one at a time, in fresh slices: what verdicts come from.

use std::collections::HashMap;

use super::{Runner, Stop};
use crate::experiment::{
    analysis::{
        contrast::contrasts,
        estimate::{LEAST_BLOCKS, estimate},
        findings::is_decided,
        looks,
    },
    record::{PhaseKind, Treatment},
    schedule::{LEVELS, confirm_block},
};

/// The basic dose of a function, as a share of a unit's time: twice that is within what a unit may be slowed
/// down by.
pub(crate) const BASIC: f64 = 0.45;
/// Blocks between two looks at whether larger doses are in order.
const LOOKS_AT_DOSES: u32 = 4;
/// Larger doses than this many times the basic one say nothing more.
const LARGEST: f64 = 64.0;

impl Runner<'_> {
    /// See above. `share` of a unit's time for each candidate had slowed a unit down by `up`.
    pub(super) fn confirm(
        &mut self,
        survivors: &[u32],
        rest: &[u32],
        share: f64,
        up: f64,
    ) -> Result<(), Stop> {
        let time = self.time_left();
        self.begin_phase(PhaseKind::Confirm, time);
        let in_block = confirm_block(survivors, !rest.is_empty(), &mut self.random).len();
        let slices = self.times.slices_in(time);
        let planned = (slices / u32::try_from(in_block).unwrap_or(u32::MAX).max(1)).max(LEAST_BLOCKS as u32);
        self.measured.rules.planned_blocks = planned;
        let basic = BASIC * self.measured.rules.max_slowdown;
        let basic_of_rest = share * basic / up;
        let mut scales: HashMap<Treatment, f64> = HashMap::new();
        for block in 0..planned {
            for (place, treatment) in
                confirm_block(survivors, !rest.is_empty(), &mut self.random).into_iter().enumerate()
            {
                let scale = scales.get(&treatment).copied().unwrap_or(1.0);
                let level = LEVELS[(block as usize + place) % LEVELS.len()];
                let doses = match treatment {
                    Treatment::Function { candidate } => self.doses(&[candidate], basic * level * scale),
                    Treatment::Rest => self.doses(rest, basic_of_rest * level * scale),
                    Treatment::Control | Treatment::Placebo | Treatment::Several => Vec::new(),
                };
                let slice = self.slice(block, treatment, &doses)?;
                if !doses.is_empty() && self.was_too_slow(&slice) {
                    scales.insert(treatment, scale / 2.0);
                }
            }
            let done = block + 1;
            if done % LOOKS_AT_DOSES == 0 {
                self.learn_unit(PhaseKind::Confirm);
                self.enlarge(&mut scales);
            }
            if looks::done(done, planned) > looks::done(block, planned) && is_decided(&self.measured) {
                self.end_phase(&format!("all is decided after {done} of {planned} blocks"));
                return Ok(());
            }
        }
        self.end_phase(&format!("{planned} blocks"));
        Ok(())
    }

    /// Doubles the doses of functions where so little shows that twice as much is within what is allowed.
    fn enlarge(&self, scales: &mut HashMap<Treatment, f64>) {
        let slices = || self.measured.of_phase(PhaseKind::Confirm);
        for treatment in self.measured.treated() {
            let of = contrasts(slices(), treatment, u32::MAX, self.measured.by);
            let Some(found) = estimate(&of, 0.9) else { continue };
            let longest = of.iter().map(|of| of.delay).fold(0.0, f64::max);
            let scale = scales.entry(treatment).or_insert(1.0);
            let shows = found.high.max(0.0) * 2.0 * longest / self.unit;
            let guarded = slices().any(|slice| slice.treatment == treatment && slice.guarded);
            if shows < self.measured.rules.max_slowdown / 2.0 && *scale < LARGEST && !guarded {
                *scale *= 2.0;
            }
        }
    }
}
