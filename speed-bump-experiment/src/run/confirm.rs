//! Few functions or groups, one at a time, in fresh slices: what verdicts come from.

use std::collections::HashMap;

use super::{Runner, Stop, slices::GUARDS};
use crate::{
    analysis::{
        contrast::contrasts,
        estimate::{MIN_BLOCKS, estimate},
        findings::{is_decided, no_measure},
        interim,
        shared::hidden_together,
    },
    record::{Group, PhaseKind, Treatment},
    schedule::{LEVELS, confirm_block, confirm_block_slices},
};

/// The basic dose of a function, as a share of a unit's time: twice that is within what a unit may be slowed
/// down by.
pub const BASIC: f64 = 0.45;
/// Blocks between two looks at whether larger doses are in order.
const LOOKS_AT_DOSES: u32 = 4;
/// Larger doses than this many times the basic one say nothing more.
const LARGEST: f64 = 64.0;

/// What is looked at, and by how much.
struct Arms {
    /// In the blocks to come.
    treatments: Vec<Treatment>,
    /// Everything else.
    rest: Vec<Treatment>,
    /// By how much more or less than usual each is delayed.
    scales: HashMap<Treatment, Scale>,
    /// The basic dose.
    basic: f64,
    /// The basic dose of each of several that are delayed together.
    basic_of_each: f64,
}

/// The doses of a treatment against the basic ones.
#[derive(Clone, Debug)]
struct Scale {
    /// So many times as large.
    factor: f64,
    /// How many slices in a row were too slow.
    too_slow: usize,
    /// The factors that were halved, each as often as it was.
    halved: Vec<f64>,
}

impl Default for Scale {
    fn default() -> Self {
        Self { factor: 1.0, too_slow: 0, halved: Vec::new() }
    }
}

impl Scale {
    /// Halves the doses after some slices in a row that were too slow: once may be the machine's own doing.
    fn follow(&mut self, was_too_slow: bool) {
        self.too_slow = if was_too_slow { self.too_slow + 1 } else { 0 };
        if self.too_slow >= GUARDS {
            self.too_slow = 0;
            self.halved.push(self.factor);
            self.factor /= 2.0;
        }
    }

    /// Whether twice as much was too much again and again.
    fn twice_was_too_much(&self) -> bool {
        self.halved.iter().filter(|of| **of <= self.factor * 2.0).count() >= GUARDS
    }
}

impl Runner<'_> {
    /// See above. `share` of a unit's time for each of all functions had slowed a unit down by `up`.
    pub(super) fn confirm(
        &mut self,
        survivors: Vec<Treatment>,
        rest: &[Treatment],
        share: f64,
        up: f64,
    ) -> Result<(), Stop> {
        let time = self.time_left();
        self.begin_phase(PhaseKind::Confirm, time);
        let mut treatments = survivors;
        treatments.extend((!rest.is_empty()).then_some(Treatment::Rest));
        let slices = self.slices_in(time);
        let planned = (slices / confirm_block_slices(treatments.len())).max(MIN_BLOCKS as u32);
        self.measured.rules.planned_blocks = planned;
        let basic = BASIC * self.measured.rules.max_slowdown;
        let mut arms = Arms {
            treatments,
            rest: rest.to_vec(),
            scales: HashMap::new(),
            basic,
            basic_of_each: share * basic / up,
        };
        for block in 0..planned {
            if self.is_out_of_time() {
                self.end_phase(&format!("{block} of {planned} blocks; time was up"));
                return Ok(());
            }
            self.block(block, &mut arms)?;
            // What follows may take a while.
            self.subject.set(&[])?;
            let done = block + 1;
            if done % LOOKS_AT_DOSES == 0 {
                self.learn_unit(PhaseKind::Confirm);
                self.enlarge(&mut arms);
            }
            if interim::done(done, planned) > interim::done(block, planned) {
                if let Some(why) = no_measure(&self.measured) {
                    return Err(Stop::Invalid(why));
                }
                let joined = self.join(&mut arms, share, up);
                if !joined && is_decided(&self.measured) {
                    self.end_phase(&format!("all is decided after {done} of {planned} blocks"));
                    return Ok(());
                }
            }
        }
        self.end_phase(&format!("{planned} blocks"));
        Ok(())
    }

    /// A slice for each treatment, with controls, in random order.
    fn block(&mut self, block: u32, arms: &mut Arms) -> Result<(), Stop> {
        let order = confirm_block(&arms.treatments, &mut self.random);
        for (place, treatment) in order.into_iter().enumerate() {
            if self.is_out_of_time() {
                break;
            }
            let scale = arms.scales.get(&treatment).map_or(1.0, |scale| scale.factor);
            // Levels take turns, also for one and the same treatment.
            let turn = block as usize + place;
            let own = &self.options.doses;
            let (level, basic) = match own.get(turn % own.len().max(1)) {
                Some(dose) => (dose / arms.basic, arms.basic),
                None => (LEVELS[turn % LEVELS.len()], arms.basic),
            };
            let doses = match treatment {
                Treatment::Function { .. } => self.doses(&[treatment], basic * level * scale),
                Treatment::Group { group } if self.is_joined(group) => {
                    // Each by its own time, so that what shows of all is what all are worth.
                    let members = self.measured.members(treatment).len() as f64;
                    self.doses(&[treatment], arms.basic_of_each * members * level * scale)
                }
                Treatment::Group { .. } => self.doses(&[treatment], basic * level * scale),
                Treatment::Rest => self.doses(&arms.rest, arms.basic_of_each * level * scale),
                Treatment::Control | Treatment::Placebo | Treatment::Several => Vec::new(),
            };
            let slice = self.slice(block, treatment, &doses)?;
            if !doses.is_empty() {
                arms.scales.entry(treatment).or_default().follow(self.was_too_slow(&slice));
            }
        }
        Ok(())
    }

    /// Doubles the doses where so little shows that twice as much is within what is allowed, and those that
    /// were halved, where that was the service's own doing.
    fn enlarge(&self, arms: &mut Arms) {
        if !self.options.doses.is_empty() {
            return;
        }
        let slices = || self.measured.of_phase(PhaseKind::Confirm);
        let allowed = self.measured.rules.max_slowdown;
        for treatment in self.measured.treated() {
            let of = contrasts(slices(), treatment, u32::MAX, self.measured.by);
            let Some(found) = estimate(&of, 0.9) else { continue };
            let scale = arms.scales.entry(treatment).or_default();
            let twice = 2.0 * arms.basic * LEVELS[LEVELS.len() - 1] * scale.factor;
            let all = self.measured.slices.iter().filter(|slice| slice.phase == PhaseKind::Confirm);
            let latest = all.filter(|slice| slice.treatment == treatment).rev();
            let guarded = latest.take(LOOKS_AT_DOSES as usize).filter(|slice| slice.guarded).count();
            let shows_little = found.high.max(0.0) * twice < allowed / 2.0 && scale.factor < LARGEST;
            let was_halved = scale.factor < 1.0 && found.sensitivity * twice <= allowed;
            if guarded < GUARDS && !scale.twice_was_too_much() && (shows_little || was_halved) {
                scale.factor *= 2.0;
            }
        }
    }

    /// Where each of some functions stays hidden, and all together showed more than the others explain, they
    /// are looked at together from now on, in the place of each alone; and where they matter together, the
    /// halves of them.
    fn join(&mut self, arms: &mut Arms, share: f64, up: f64) -> bool {
        let parts = hidden_together(&self.measured, share, up);
        for members in &parts {
            let names: Vec<&str> = members
                .iter()
                .filter_map(|of| self.measured.candidates.get(*of as usize))
                .map(|candidate| candidate.name.as_str())
                .collect();
            let group = Group {
                name: names.join(" + "),
                members: members.clone(),
                shares_slack: true,
                beside_members: false,
            };
            let number = u32::try_from(self.measured.groups.len()).unwrap_or(u32::MAX);
            self.measured.groups.push(group);
            arms.treatments.push(Treatment::Group { group: number });
        }
        if !parts.is_empty() {
            let within = |of: &Treatment| match of {
                Treatment::Function { candidate } => parts.iter().any(|part| part.contains(candidate)),
                Treatment::Group { group } => {
                    let of = self.measured.members(*of);
                    let is_part = |part: &&Vec<u32>| part.len() < of.len() && of.contains(&part[0]);
                    self.is_joined(*group) && parts.iter().any(|part| is_part(&part))
                }
                Treatment::Rest | Treatment::Control | Treatment::Placebo | Treatment::Several => false,
            };
            arms.treatments.retain(|of| !within(of));
        }
        !parts.is_empty()
    }

    fn is_joined(&self, group: u32) -> bool {
        self.measured.groups.get(group as usize).is_some_and(|of| of.shares_slack)
    }
}
