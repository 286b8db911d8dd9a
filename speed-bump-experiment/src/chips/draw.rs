//! Draws the delays of a chip: each function has a dose, and a chance to get it.
//!
//! The budget limits *planned* delays, before the service feels any. In each chip, the delays that are
//! expected to show stay within a bound, as a share of a unit's time. The delays of each thread stay within a
//! bound too, whether they show or not.

use rand::{RngExt as _, seq::SliceRandom as _};
use rand_pcg::Pcg64Mcg;

/// The part of the bound that chips use on average, so that few draws have to be cut.
const AVERAGE: f64 = 0.5;
/// The part of a thread's bound that is used on average.
const THREAD_AVERAGE: f64 = 0.75;
/// Bisections for the chances.
const ROUNDS: usize = 40;

/// Bounds of a chip, as shares of a unit's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The dose of a function.
    pub dose: f64,
    /// The most that all doses together may show.
    pub shows: f64,
    /// The most that a thread may be delayed.
    pub thread: f64,
}

/// What the draw knows about a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Whether it may have a dose in this chip.
    pub active: bool,
    /// The most of its dose that may show, as a share, from the estimate of this function alone.
    pub may_show: f64,
    /// `may_show`, scaled down to what all functions together may show.
    pub likely_shows: f64,
    /// The function gets at most this part of a dose.
    pub part: f64,
    /// Its thread.
    pub thread: u32,
}

impl Known {
    /// The usual dose of this function: smaller if it may show several times.
    fn usual_dose(&self, budget: Budget) -> f64 {
        budget.dose.min(budget.shows / self.may_show.max(1.0))
    }

    /// Its dose in the next chip, if it gets one.
    fn dose(&self, budget: Budget) -> f64 {
        (self.part * budget.dose).min(self.usual_dose(budget))
    }
}

/// The chance of each function to get a dose.
pub fn chances(known: &[Known], budget: Budget) -> Vec<f64> {
    let threads = known.iter().map(|of| of.thread as usize + 1).max().unwrap_or_default();
    let at = |scale: f64| -> Vec<f64> {
        let chance = |of: &Known| {
            if of.active { (scale / of.likely_shows.max(1e-9).sqrt()).min(0.5) } else { 0.0 }
        };
        known.iter().map(chance).collect()
    };
    let fits = |chances: &[f64]| {
        let mut of_threads = vec![0.0; threads];
        let mut shows = 0.0;
        for (of, chance) in known.iter().zip(chances) {
            shows += chance * of.usual_dose(budget) * of.likely_shows;
            of_threads[of.thread as usize] += chance * of.usual_dose(budget);
        }
        shows <= AVERAGE * budget.shows && of_threads.iter().all(|sum| *sum <= THREAD_AVERAGE * budget.thread)
    };
    let (mut low, mut high) = (0.0, 50.0);
    for _ in 0..ROUNDS {
        let middle = (low + high) / 2.0;
        if fits(&at(middle)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    at(low)
}

/// Draws the doses of a chip. If doses exceed the budget, leaves out functions at random.
pub fn draw(known: &[Known], chances: &[f64], budget: Budget, random: &mut Pcg64Mcg) -> Vec<f64> {
    let mut on: Vec<usize> =
        (0..known.len()).filter(|at| chances[*at] > 0.0 && random.random_bool(chances[*at])).collect();
    on.shuffle(random);
    let threads = known.iter().map(|of| of.thread as usize + 1).max().unwrap_or_default();
    let mut of_threads = vec![0.0; threads];
    let mut shows = 0.0;
    let mut doses = vec![0.0; known.len()];
    for at in on {
        let of = &known[at];
        let dose = of.dose(budget);
        let thread = &mut of_threads[of.thread as usize];
        let fits =
            *thread + dose <= budget.thread + 1e-9 && shows + dose * of.may_show <= budget.shows + 1e-9;
        if fits {
            *thread += dose;
            shows += dose * of.may_show;
            doses[at] = dose;
        }
    }
    doses
}
