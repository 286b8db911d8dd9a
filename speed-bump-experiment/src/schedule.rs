//! What is delayed when: which slices there are, in which order, and with which doses. Random, from a seed.

use std::time::Duration;

use rand::{RngExt as _, seq::SliceRandom as _};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::record::Treatment;
use crate::units::Nanos;

/// Functions that are looked at one by one in the end.
pub const MAX_SURVIVORS: usize = 8;
/// Doses of the last phase, as multiples of the basic one: a bend shows only in different ones.
pub const LEVELS: [f64; 3] = [0.5, 1.0, 2.0];
/// Slices of a block of the screen, of which [`SCREEN_CONTROLS`] are without delays.
pub const SCREEN_BLOCK: usize = 16;
/// Slices without delays in each block of the screen.
pub const SCREEN_CONTROLS: usize = 4;
/// Shares of the time for the phases; the rest is for the last one.
const CENSUS: f64 = 0.06;
const TITRATE: f64 = 0.10;
const SCREEN: f64 = 0.35;
/// Units that a slice should hold.
const UNITS_OF_SLICE: f64 = 40.0;
/// And of those that are under way at once, so many times as many: queues between parts of a service fill and
/// empty, before its pace changes.
const TURNS_OF_SLICE: f64 = 16.0;
/// The shortest slice where it is known how many units are under way: machines change their pace by
/// themselves, and the nearer two slices are, the more they have in common.
const SHORTEST_SLICE: Duration = Duration::from_millis(40);
/// And where it is not known.
const SHORTEST_OF_UNKNOWN: Duration = Duration::from_millis(150);
/// A change of doses has settled after this part of a slice, which is dropped.
pub const BURN_IN: f64 = 0.25;
/// After so many units at the latest.
const SETTLED: f64 = 3.0;
/// Slices that there should be time for: blocks are what intervals come from.
const WANTED_SLICES: f64 = 160.0;
/// A slice holds so many units however few there are then.
const MIN_UNITS: f64 = 8.0;

/// How units come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The time of a slice over its units, in ns; or of one run of a benchmark.
    pub unit: f64,
    /// Units that are under way at once, where that is known.
    pub under_way: Option<f64>,
}

/// How the time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// What is measured of a slice.
    pub slice: Nanos,
    /// What is dropped before it.
    pub burn_in: Nanos,
    /// For the census, in which nothing is delayed.
    pub census: Nanos,
    /// For the titration.
    pub titrate: Nanos,
    /// For the screen; 0 without one.
    pub screen: Nanos,
    /// For the last phase.
    pub confirm: Nanos,
}

impl Times {
    /// Of so much time in all, with so many functions. `slice` overrides.
    pub fn of(total: Duration, functions: usize, pace: Pace, slice: Option<Duration>) -> Self {
        let total = Nanos::from(total).0 as f64;
        let Pace { unit, under_way } = pace;
        let shortest = if under_way.is_some() { SHORTEST_SLICE } else { SHORTEST_OF_UNKNOWN };
        let wanted = slice.map_or_else(
            || {
                let units = UNITS_OF_SLICE.max(under_way.unwrap_or(0.0) * TURNS_OF_SLICE);
                let some = (units * unit).max(Nanos::from(shortest).0 as f64);
                some.min(total / WANTED_SLICES).max(MIN_UNITS * unit)
            },
            |slice| Nanos::from(slice).0 as f64,
        );
        let settled = SETTLED.max(under_way.unwrap_or(0.0)) * unit;
        let burn_in = (BURN_IN * wanted).max(settled).min(wanted);
        let screen = if functions > MAX_SURVIVORS { SCREEN } else { 0.0 };
        let part = |share: f64| Nanos((share * total) as u64);
        Self {
            slice: Nanos(wanted as u64),
            burn_in: Nanos(burn_in as u64),
            census: part(CENSUS),
            titrate: part(TITRATE),
            screen: part(screen),
            confirm: part(1.0 - CENSUS - TITRATE - screen),
        }
    }

    /// The same where a slice is a run of a benchmark, which takes so many ns. It begins with its doses.
    pub fn of_runs(total: Duration, functions: usize, run: f64) -> Self {
        let times = Self::of(total, functions, Pace { unit: run, under_way: None }, None);
        Self { slice: Nanos(run as u64), burn_in: Nanos(0), ..times }
    }

    /// A slice with what is dropped before it.
    pub fn whole_slice(&self) -> Nanos {
        self.slice + self.burn_in
    }

    /// How many whole slices fit.
    pub fn slices_in(&self, time: Nanos) -> u32 {
        u32::try_from(time.0 / self.whole_slice().0.max(1)).unwrap_or(u32::MAX)
    }
}

/// The slices of a block of the last phase: each treatment once, a placebo, and controls: the square root of
/// the number of those, which is best when all are compared with them.
pub fn confirm_block(treatments: &[Treatment], random: &mut Pcg64Mcg) -> Vec<Treatment> {
    let mut treated = treatments.to_vec();
    treated.push(Treatment::Placebo);
    treated.shuffle(random);
    let count = controls(treated.len());
    among(treated, Treatment::Control, count, random)
}

/// Puts so many of one kind among others, one at a random place in each part: what is compared with them is
/// to be near one.
fn among<T: Clone>(others: Vec<T>, one: T, count: usize, random: &mut Pcg64Mcg) -> Vec<T> {
    let all = others.len() + count;
    let start = |part: usize| part * all / count.max(1);
    let places: Vec<usize> =
        (0..count).map(|part| random.random_range(start(part)..start(part + 1))).collect();
    let mut others = others.into_iter();
    let at = |place: usize| if places.contains(&place) { Some(one.clone()) } else { others.next() };
    (0..all).filter_map(at).collect()
}

/// How many slices such a block has.
pub fn confirm_block_slices(treatments: usize) -> u32 {
    let treated = treatments + 1;
    u32::try_from(treated + controls(treated)).unwrap_or(u32::MAX)
}

/// Slices without delays in a block of so many others.
pub(super) fn controls(others: usize) -> usize {
    ((others as f64).sqrt().round() as usize).max(1)
}

/// The subsets of a block of the screen, an empty one for each control. Each subset comes with what it leaves
/// out, so that every function is delayed in half of them, and the two of a pair delay about as much.
pub fn screen_block(functions: usize, random: &mut Pcg64Mcg) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..functions).collect();
    let mut subsets: Vec<Vec<usize>> = Vec::new();
    for _ in 0..(SCREEN_BLOCK - SCREEN_CONTROLS) / 2 {
        order.shuffle(random);
        let (one, other) = order.split_at(functions / 2);
        subsets.extend([one.to_vec(), other.to_vec()]);
    }
    subsets.shuffle(random);
    among(subsets, Vec::new(), SCREEN_CONTROLS, random)
}

/// The delay of a call that makes a function so much slower per unit, in ns; not more than a call may be
/// delayed, and not less than it can be.
pub fn call_dose(delay_per_unit: f64, calls_per_unit: f64, floor: Nanos, longest: Nanos) -> Nanos {
    if calls_per_unit <= 0.0 {
        return Nanos(0);
    }
    Nanos((delay_per_unit / calls_per_unit).round() as u64).max(floor).max(Nanos(1)).min(longest)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn random() -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(7)
    }

    #[test]
    fn a_block_holds_each_treatment_once_and_some_controls() {
        let function = |candidate| Treatment::Function { candidate };
        let all = [function(4), function(7), function(9), Treatment::Rest];
        let mut block = confirm_block(&all, &mut random());
        assert_eq!(block, confirm_block(&all, &mut random()), "the same from the same seed");
        assert_eq!(block.len(), confirm_block_slices(all.len()) as usize);
        let (one, other) = block.split_at(block.len() / 2);
        assert!([one, other].iter().all(|half| half.contains(&Treatment::Control)), "{block:?}");
        block.sort_unstable();
        let [control, placebo] = [Treatment::Control, Treatment::Placebo];
        assert_eq!(
            block,
            [control, control, placebo, function(4), function(7), function(9), Treatment::Rest]
        );
    }

    #[test]
    fn every_function_is_in_half_of_the_subsets() {
        let block = screen_block(9, &mut random());
        assert_eq!(block.len(), SCREEN_BLOCK);
        assert_eq!(block.iter().filter(|subset| subset.is_empty()).count(), SCREEN_CONTROLS);
        for function in 0..9 {
            let within = block.iter().filter(|subset| subset.contains(&function)).count();
            assert_eq!(within, (SCREEN_BLOCK - SCREEN_CONTROLS) / 2);
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

    #[test]
    fn slices_hold_enough_units_and_there_are_enough_of_them() {
        let time = Duration::from_secs(120);
        let of = |unit, functions| Times::of(time, functions, Pace { unit, under_way: None }, None);
        assert_eq!(of(10_000.0, 3).slice, Nanos(150_000_000));
        let slow = of(10_000_000.0, 3);
        assert_eq!(
            (slow.slice, slow.burn_in, slow.screen),
            (Nanos(400_000_000), Nanos(100_000_000), Nanos(0))
        );
        assert_eq!(of(20e6, 3).slice, Nanos(750_000_000));
        assert_eq!(of(1e9, 3).slice, Nanos(8_000_000_000));
        let under_way = |unit, count| Times::of(time, 3, Pace { unit, under_way: Some(count) }, None);
        assert_eq!(under_way(10_000.0, 8.0).slice, Nanos(40_000_000));
        let queued = under_way(1_000_000.0, 20.0);
        assert_eq!((queued.slice, queued.burn_in), (Nanos(320_000_000), Nanos(80_000_000)));
        let many = of(10_000.0, 20);
        let sum = many.census + many.titrate + many.screen + many.confirm;
        assert!(sum.0.abs_diff(120_000_000_000) < 10, "{sum}");
        assert!(many.screen > many.titrate);
        let slices = many.slices_in(many.confirm);
        assert!((200..400).contains(&slices), "{slices}");
    }
}
