//! Random halves of all functions, to find the few that are worth a look of their own.

use super::{Runner, Stop};
use crate::units::Nanos;
use crate::{
    analysis::{estimate, untried::of_all},
    groups::drill_down,
    record::{Candidate, PhaseKind, Treatment},
    schedule::{MAX_SURVIVORS, SCREEN_BLOCK, screen_block},
    screen::{Screened, rows, screened},
};

/// By what share of its time a half of all functions is to slow a unit down.
const WANTED: f64 = 0.10;
/// Blocks after which it may be seen that all delays show alike.
const BLOCKS_OF_ALIKE: u32 = estimate::MIN_BLOCKS as u32;
/// By how much the sensitivity that all have is to be known, either way.
const KNOWN: f64 = 0.15;
/// Blocks that there are, however little time there is.
const MIN_BLOCKS: u32 = 2;
/// Of more than this each function gets no larger doses, as a share of a unit's time.
const LARGEST: f64 = 1.0;

impl Runner<'_> {
    /// Whether it is known by how much all delays show, taken together.
    fn all_are_known(&self) -> bool {
        of_all(&self.measured).is_some_and(|of| of.high - of.low < 2.0 * KNOWN)
    }

    /// Functions that show alike are looked at together, by where they run and are defined.
    fn groups_of_alike(&mut self, arms: &[Treatment]) -> Vec<Treatment> {
        let measured = &mut self.measured;
        let function = |of: &Treatment| match *of {
            Treatment::Function { candidate } => {
                measured.candidates.get(candidate as usize).map(|found| (candidate, found))
            }
            _ => None,
        };
        let functions: Vec<(u32, &Candidate)> = arms.iter().filter_map(function).collect();
        let found = drill_down(&functions, |of| measured.own_of(of).unwrap_or(0.0));
        let first = u32::try_from(measured.groups.len()).unwrap_or(u32::MAX);
        let treatments = (first..).zip(&found).map(|(group, _)| Treatment::Group { group }).collect();
        measured.groups.extend(found);
        treatments
    }

    /// Chooses the functions or groups to look at one by one; the others are returned behind them. `dose`, a
    /// share of a unit's time for each had slowed a unit down by `up`.
    pub(super) fn screen(
        &mut self,
        arms: &[Treatment],
        dose: f64,
        up: f64,
    ) -> Result<(Vec<Treatment>, Vec<Treatment>), Stop> {
        let share = self.times.screen.0 as f64 / (self.times.screen.0 + self.times.confirm.0).max(1) as f64;
        let time = Nanos((self.time_left().0 as f64 * share) as u64);
        self.begin_phase(PhaseKind::Screen, time);
        let slices = self.slices_in(time);
        let blocks = (slices / SCREEN_BLOCK as u32).max(MIN_BLOCKS);
        let mut dose = (dose * 2.0 * WANTED / up).min(LARGEST);
        let mut found = Screened::default();
        // By how much all show is known from so many blocks on, if there is time for nearly as many.
        let most = if 2 * blocks < BLOCKS_OF_ALIKE { blocks } else { blocks.max(BLOCKS_OF_ALIKE) };
        for block in 0..most {
            if block >= blocks && !found.all_alike || block >= MIN_BLOCKS && self.is_out_of_time() {
                break;
            }
            let (mut guarded, mut slower) = (0, Vec::new());
            for subset in screen_block(arms.len(), &mut self.random) {
                let subset: Vec<Treatment> = subset.iter().filter_map(|of| arms.get(*of).copied()).collect();
                let treatment = if subset.is_empty() { Treatment::Control } else { Treatment::Several };
                let doses = self.doses(&subset, dose);
                let slice = self.slice(block, treatment, &doses)?;
                guarded += usize::from(!doses.is_empty() && self.was_too_slow(&slice));
                slower.extend(self.slowdown(&slice).filter(|_| !doses.is_empty()));
            }
            // What follows may take a while.
            self.subject.set(&[])?;
            let mean = slower.iter().sum::<f64>() / slower.len().max(1) as f64;
            if guarded > SCREEN_BLOCK / 4 {
                dose /= 2.0;
            } else if guarded == 0 && mean < WANTED / 3.0 {
                dose = (dose * 2.0).min(LARGEST);
            }
            let all = self.measured.candidates.len();
            let rows = rows(self.measured.of_phase(PhaseKind::Screen), self.measured.by);
            found = screened(&rows, all, MAX_SURVIVORS);
            if found.all_alike && block + 1 >= BLOCKS_OF_ALIKE && self.all_are_known() {
                break;
            }
        }
        self.learn_unit(PhaseKind::Screen);
        // What slices point to, and then what takes the most time: that is what people ask about.
        let mut survivors: Vec<Treatment> = Vec::new();
        if found.all_alike {
            survivors.extend(self.groups_of_alike(arms));
        } else {
            let arm_of =
                |candidate: &u32| arms.iter().find(|arm| self.measured.members(**arm).contains(candidate));
            survivors.extend(found.found.iter().filter_map(|(candidate, _)| arm_of(candidate)));
        }
        let by_own = arms.iter().filter(|of| !survivors.contains(of)).copied();
        let by_own: Vec<Treatment> = by_own.take(MAX_SURVIVORS.saturating_sub(survivors.len())).collect();
        let (pointed_to, more) = (survivors.len(), by_own.len());
        survivors.extend(by_own);
        let rest = arms.iter().filter(|of| !survivors.contains(of)).copied().collect();
        self.end_phase(&if found.all_alike {
            "all delays show alike, as on one saturated thread: what functions are worth is what they take"
                .to_owned()
        } else {
            format!("{pointed_to} functions stand out; {more} more for the time that they take")
        });
        Ok((survivors, rest))
    }
}
