//! The phase after the verdicts: doses of several sizes, one function at a time. It tells which delays of a
//! function are long enough to show, and changes no verdict.

use rand::seq::IndexedRandom as _;

use super::{Runner, Stop};
use crate::{
    analysis::{
        curve::{Curve, curves},
        findings,
        replay::{Replayed, replay},
    },
    chips::design::{Found, Verdict},
    record::{PhaseKind, Treatment},
    units::Nanos,
};

/// The most functions that the ladder tries.
const FUNCTIONS: usize = 3;
/// If the upper end of the sensitivity is at least this, all of a delay may show.
const ALL: f64 = 0.9;
/// The doses, as multiples of the allowed slow-down. The ladder begins with the first ones, and adds the next
/// one to them when the longest so far is hidden.
const RUNGS: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
/// All functions begin with this many rungs.
const FIRST_RUNGS: usize = 3;
/// The chips of a round, for each function. After each round the ladder may add rungs.
const CHIPS: u32 = 24;
/// The share of chips that have no delays.
const WITHOUT: f64 = 0.25;
/// A delay shows if at least this share of it does. There are many rounds, so a smaller share may show in one
/// of them by chance.
const PART_OF_DELAY: f64 = 0.2;
/// A rung counts as tried if the delays were at least this part of the rung's dose: delays of calls are whole
/// ns, so they may be a little less than the dose.
const TRIED: f64 = 0.95;
/// The ladder takes at most the time of the experiment divided by this.
const PART: u64 = 6;

impl Runner<'_> {
    /// Tries delays of several lengths on the functions that [`of_interest`] chooses.
    pub(super) fn ladder(&mut self) -> Result<(), Stop> {
        // A delay that is hidden in the mean may show in a quantile. Measuring a quantile on each rung would
        // take too long.
        let is_of_mean = self.measured.by.quantile().is_none();
        if self.options.runs || !is_of_mean || self.time_left().0 == 0 {
            return Ok(());
        }
        let unit = findings::unit(&self.measured).unwrap_or(self.unit);
        let replayed = replay(&self.measured, unit);
        let mut rungs: Vec<(usize, usize)> =
            of_interest(&replayed).into_iter().map(|arm| (arm, FIRST_RUNGS)).collect();
        if rungs.is_empty() {
            return Ok(());
        }
        let time = Nanos((Nanos::from(self.options.total).0 / PART).min(self.time_left().0));
        self.begin_phase(PhaseKind::Ladder, time);
        let end = self.subject.now() + time;
        let bound = self.measured.rules.max_slowdown;
        let mut block = 0;
        while self.subject.now() < end {
            let longest = rungs.iter().filter_map(|(_, count)| RUNGS.get(count - 1)).copied();
            self.bound_threads(longest.fold(1.0, f64::max))?;
            for _ in 0..CHIPS * u32::try_from(rungs.len()).unwrap_or(1) {
                if self.subject.now() >= end {
                    break;
                }
                let is_without = rand::RngExt::random_bool(&mut self.random, WITHOUT);
                let drawn = rungs.choose(&mut self.random).copied().filter(|_| !is_without);
                let rung = drawn.map(|(arm, count)| (arm, RUNGS[..count].choose(&mut self.random).copied()));
                let doses = match rung {
                    Some((arm, Some(part))) => {
                        let arm = replayed.chips.arms[arm];
                        self.doses_of(&self.measured.members(arm), part * bound)
                    }
                    _ => Vec::new(),
                };
                let treatment = if doses.is_empty() { Treatment::Control } else { Treatment::Several };
                self.slice(block, treatment, &doses)?;
                block += 1;
            }
            let found = curves(&self.measured, &replayed.chips, unit);
            for (arm, count) in &mut rungs {
                let longest = RUNGS.get(*count - 1).copied().unwrap_or_default() * bound * unit;
                let is_hidden = found
                    .get(arm)
                    .is_some_and(|curve| was_tried(curve, longest) && is_hidden(curve, bound * unit));
                *count += usize::from(is_hidden && *count < RUNGS.len());
            }
            if rungs.iter().all(|(arm, _)| found.get(arm).is_some_and(shows)) {
                break;
            }
        }
        self.subject.set(&[])?;
        self.end_phase("doses of several sizes, one function at a time");
        Ok(())
    }
}

/// Whether next to nothing of the longest delay shows. Then a delay of the next rung slows units down by at
/// most the allowed slow-down.
fn is_hidden(curve: &Curve, allowed: f64) -> bool {
    curve.doses.last().and_then(|dose| dose.high_ns).is_some_and(|high| high < allowed / 2.0)
}

/// Whether a delay of this length was really delivered, and not cut by the bound on threads.
fn was_tried(curve: &Curve, delay_ns: f64) -> bool {
    curve.doses.last().is_some_and(|dose| dose.delay_ns > TRIED * delay_ns)
}

/// Whether it is sure that a part of the longest delay shows: a longer delay tells nothing more.
fn shows(curve: &Curve) -> bool {
    curve.doses.last().is_some_and(|dose| dose.shows(PART_OF_DELAY))
}

/// The arms with a verdict whose delays show only in part, and those whose delays are hidden. If all of a
/// delay shows, a longer one tells nothing new.
fn of_interest(replayed: &Replayed) -> Vec<usize> {
    let found = || replayed.design.found().iter().enumerate();
    let with = |verdict: Verdict| {
        found().filter(move |(_, found)| matches!(found.verdict, Some((of, _)) if of == verdict))
    };
    let shows_in_part = |found: &Found| found.estimated.is_some_and(|of| findings::interval(of).high < ALL);
    let matter = with(Verdict::Matters).filter(|(_, found)| shows_in_part(found));
    matter.chain(with(Verdict::DoesNot)).map(|(at, _)| at).take(FUNCTIONS).collect()
}
