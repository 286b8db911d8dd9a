//! The phase with delays: chip after chip, until all is decided or the time is up.

use std::time::Duration;

use rand::seq::{IndexedRandom as _, SliceRandom as _};

use super::{Runner, Stop};
use crate::{
    TargetKind,
    analysis::{
        findings,
        replay::{Chips, is_chip, replay_so_far},
    },
    chips::design::{Design, Verdict},
    record::{Candidate, PhaseKind, Treatment},
    units::Nanos,
};

/// A verdict rests on chips of at least this time: while another program disturbs the machine for a second,
/// the service is not itself.
const MIN_TIME: Duration = Duration::from_secs(5);
/// In a short test, the time divided by this is enough.
const MIN_PART: u64 = 3;
/// The longest delay of a call if the user gives none; the longest one of a Python function if units are
/// long.
const LONGEST_CALL: Nanos = Nanos(10_000_000);
const LONGEST_OF_PYTHON: Nanos = Nanos(1_000_000_000);

impl Runner<'_> {
    /// Tests these functions or groups.
    pub(super) fn test(&mut self, arms: Vec<Treatment>) -> Result<(), Stop> {
        let time = self.time_left();
        self.begin_phase(PhaseKind::Test, time);
        self.bound_threads(1.0)?;
        self.measured.arms = arms.clone();
        // The findings use the same time per unit.
        let unit = findings::unit(&self.measured).unwrap_or(self.unit);
        let chips = Chips::new(&self.measured, arms, unit);
        let mut design = chips.design(&self.measured);
        let mut last = None;
        let mut block = 0;
        while !design.is_decided() && self.time_left().0 > 0 {
            let drawn = design.draw(&mut self.random);
            let doses = self.doses(&chips.arms, &drawn);
            let treatment = if doses.is_empty() { Treatment::Control } else { Treatment::Several };
            let changes = self.measured.load_changes.len();
            let slice = self.slice(block, treatment, &doses)?;
            block += 1;
            let number = self.measured.slices.iter().rposition(|of| of.start_ns == slice.start_ns);
            let is_new = if self.measured.load_changes.len() > changes {
                // Chips from before the change was noticed are dropped.
                design = replay_so_far(&self.measured, unit).design;
                true
            } else if is_chip(&slice, self.measured.by) {
                let follows = number.is_some_and(|number| number > 0 && last == Some(number - 1));
                design.add(chips.chip(&self.measured, &slice, follows))
            } else {
                false
            };
            last = number.filter(|_| is_chip(&slice, self.measured.by));
            if is_new {
                check(&design, &self.measured)?;
            }
        }
        self.subject.set(&[])?;
        if !design.is_decided() && design.chips() > 0 {
            design.estimate();
            check(&design, &self.measured)?;
        }
        let found = design.found();
        let decided = found.iter().filter(|found| found.verdict.is_some()).count();
        let (chips, asked) = (design.chips(), found.len());
        self.end_phase(&if decided == asked {
            format!("all is decided after {chips} chips")
        } else {
            format!("{decided} of {asked} decided after {chips} chips; time was up")
        });
        Ok(())
    }

    /// The least number of chips for a verdict, in the time that is left.
    pub(super) fn min_chips(&self) -> usize {
        if self.options.runs {
            return 0;
        }
        let time = self.time_left();
        self.times.slices_in(Nanos::from(MIN_TIME).min(Nanos(time.0 / MIN_PART))) as usize
    }

    /// The delays of calls that make these arms slower by these shares of a unit's time.
    fn doses(&mut self, arms: &[Treatment], drawn: &[(usize, f64)]) -> Vec<(u32, Nanos)> {
        let mut doses = Vec::new();
        let mut drawn = drawn.to_vec();
        // Doses that the user gave may be longer than the drawn ones. Then not all functions fit.
        drawn.shuffle(&mut self.random);
        let mut planned = 0.0;
        for (arm, share) in drawn {
            let named = self.options.doses.choose(&mut self.random).copied();
            planned += named.unwrap_or_default();
            if planned > self.measured.rules.max_slowdown && planned > named.unwrap_or_default() {
                break;
            }
            if let Some(arm) = arms.get(arm) {
                doses.extend(self.doses_of(&self.measured.members(*arm), named.unwrap_or(share)));
            }
        }
        doses.sort_unstable();
        doses
    }

    /// Doses that make these functions together slower by this share of a unit's time, divided among them by
    /// own time.
    pub(super) fn doses_of(&self, members: &[u32], share: f64) -> Vec<(u32, Nanos)> {
        let own: Option<Vec<f64>> = members.iter().map(|of| self.measured.own_of(*of)).collect();
        let sum: f64 = own.iter().flatten().sum();
        let parts = match own {
            Some(own) if sum > 0.0 => own.into_iter().map(|own| own / sum).collect(),
            Some(_) | None => vec![1.0 / members.len() as f64; members.len()],
        };
        let dose = |(number, part): (&u32, f64)| {
            let candidate = self.measured.candidates.get(*number as usize)?;
            let calls = self.measured.calls_per_unit(candidate);
            let delay = part * share * self.unit;
            let longest = self.options.longest_call.unwrap_or_else(|| {
                longest_call(candidate.kind, self.measured.rules.max_slowdown * self.unit)
            });
            let longest = longest.min(self.longest_by_mean(candidate, part * share));
            Some((*number, call_dose(delay, calls, candidate.floor_ns, longest)))
        };
        members.iter().zip(parts).filter_map(dose).filter(|(_, dose)| dose.0 > 0).collect()
    }

    /// If a quantile is compared, the longest delay of a call that makes the mean latency longer by this
    /// share at most: the quantile may be many times the mean.
    fn longest_by_mean(&self, candidate: &Candidate, share: f64) -> Nanos {
        let calls = self.measured.calls_per_unit(candidate) * self.measured.share_of_units(candidate);
        match (self.measured.by.quantile(), self.latency) {
            (Some(_), Some(latency)) if calls > 0.0 => Nanos((share * latency / calls) as u64),
            _ => Nanos(u64::MAX),
        }
    }
}

/// Ends the experiment if units take less time with delays.
fn check(design: &Design, measured: &crate::record::Measured) -> Result<(), Stop> {
    let is_faster = design.found().iter().any(|found| matches!(found.verdict, Some((Verdict::Faster, _))));
    // Computing all findings takes long.
    if !is_faster {
        return Ok(());
    }
    match findings::findings(measured).validity.problems.into_iter().find(|problem| problem.fatal) {
        Some(problem) => Err(Stop::Invalid(problem.text)),
        None => Ok(()),
    }
}

/// The longest delay of a call, if delays may add `slowdown` ns to a unit. A long delay in a native function
/// can keep everything else from a processor.
fn longest_call(kind: TargetKind, slowdown: f64) -> Nanos {
    match kind {
        TargetKind::Python => Nanos(slowdown as u64).clamp(LONGEST_CALL, LONGEST_OF_PYTHON),
        TargetKind::Native | TargetKind::Usdt => LONGEST_CALL,
    }
}

/// The delay of a call that adds this much per unit, in ns: `floor` at least, and `longest` at most.
fn call_dose(delay_per_unit: f64, calls_per_unit: f64, floor: Nanos, longest: Nanos) -> Nanos {
    if calls_per_unit <= 0.0 {
        return Nanos(0);
    }
    Nanos((delay_per_unit / calls_per_unit).round() as u64).max(floor).max(Nanos(1)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_long_units_may_be_delayed_for_longer() {
        for (unit, python) in [(1e6, 10_000_000), (170e6, 34_000_000), (30e9, 1_000_000_000)] {
            assert_eq!(longest_call(TargetKind::Python, 0.2 * unit), Nanos(python));
            assert_eq!(longest_call(TargetKind::Native, 0.2 * unit), Nanos(10_000_000));
        }
    }

    #[test]
    fn a_call_is_delayed_within_bounds() {
        let longest = Nanos(10_000_000);
        assert_eq!(call_dose(1_000_000.0, 5.0, Nanos(40), longest), Nanos(200_000));
        assert_eq!(call_dose(1_000.0, 50.0, Nanos(40), longest), Nanos(40));
        assert_eq!(call_dose(1e9, 5.0, Nanos(40), longest), longest);
        assert_eq!(call_dose(1e9, 0.0, Nanos(40), longest), Nanos(0));
    }
}
