//! Decides which functions are delayed next, and gives the verdicts so far. Chips are added to a design one
//! by one, and it does no input or output: the same chips give the same verdicts, in a running experiment and
//! from its record.

mod fits;

use std::collections::BTreeMap;

use nalgebra::DMatrix;
use rand_pcg::Pcg64Mcg;

pub use super::verdict::{Estimated, Rules, Verdict};
use super::{
    draw::{Budget, Known, chances, draw},
    influence::Counts,
    regression::{FarOff, Fitting, best_fit},
};
use fits::{alone, estimated, widened};

/// Chips between two estimates, at least.
const MIN_BETWEEN: usize = 16;
/// An estimate has this many times as many chips as the one before, at least.
const GROWTH: f64 = 1.15;
/// [`GROWTH`] with more than [`MANY`] functions: the time that an estimate takes grows with the square of
/// their number.
const GROWTH_OF_MANY: f64 = 1.6;
const MANY: usize = 100;
/// If there are more functions than this, we do not fit them together, but each against the sum of the
/// others.
const MAX_TOGETHER: usize = 500;
/// A verdict needs this many chips in which the function has a dose, and this many others.
const MIN_CHIPS: usize = 10;
/// A normal value is less than this many deviations above the mean in 95 of 100 cases.
const ONE_SIDED_95: f64 = 1.64;
/// The most that may show of a function's dose is assumed to be this many standard errors above the estimate.
const SAFE: f64 = 2.5;
/// Three assumptions about the share of a dose that shows: the least; the one if nothing is known; and the
/// most.
const SHOWS: [f64; 3] = [0.02, 1.2, 50.0];
/// A function that matters is tested until its standard error is below this or, if its sensitivity is large,
/// below a part of that, [`PRECISE_OF_LARGE`]. With a limit relative to any estimate, tests would end while
/// an estimate is too high by chance.
const PRECISE: f64 = 0.07;
const PRECISE_OF_LARGE: f64 = 0.05;
/// An estimate with a larger standard error gives no bound.
const MAX_ERROR: f64 = 0.4;
/// We assume that the sum of all sensitivities is at least this.
const MIN_TOGETHER: f64 = 0.3;
/// The reach of the baseline while chips are too few for a fit of all functions.
const EARLY_REACH: usize = 6;
/// A fit of all functions needs this many chips for each, and [`CHIPS_BESIDES`] more.
const CHIPS_OF_EACH: f64 = 1.5;
const CHIPS_BESIDES: f64 = 20.0;
/// A verdict on a quantile needs this many units beyond it.
const MIN_BEYOND: f64 = 40.0;
/// A function is called in rare parts of units if its calls in a chip differ by this share of their mean.
const RARE: f64 = 0.7;
/// The first doses of a function are smaller: up to this many chips, this part of the usual dose.
const RAMP: [(usize, f64); 2] = [(16, 0.25), (32, 0.5)];
/// The first turn takes at most this many times the chips that a verdict needs.
const FIRST_TURN: usize = 4;

/// A function, or a group of them, that the experiment asks about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Its own time as a share of a unit; `None` if unknown.
    pub share: Option<f64>,
    /// The thread that it mostly runs on, numbered from 0.
    pub thread: u32,
    /// Whether it has the first turn, as the service's own code has. The turn of all others begins when these
    /// are decided, or had enough time.
    pub is_first: bool,
}

/// What is known of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Its sensitivity; `None` before the first estimate.
    pub estimated: Option<Estimated>,
    /// The verdict, and after how many chips it was reached.
    pub verdict: Option<(Verdict, usize)>,
    /// Chips in which it had a dose.
    pub on: usize,
    /// How many of these chips the estimate uses.
    pub on_then: usize,
}

impl Found {
    /// Whether it needs more chips: it has no verdict, or it matters and its estimate is not precise.
    fn is_open(&self) -> bool {
        match (self.verdict, self.estimated) {
            (None, _) => true,
            (Some((Verdict::Matters, _)), Some(of)) => {
                of.error > PRECISE.max(PRECISE_OF_LARGE * of.sensitivity.abs())
            }
            (Some(_), _) => false,
        }
    }
}

/// How much numbers differ.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, number: f64) {
        self.count += 1.0;
        self.sum += number;
        self.squares += number * number;
    }

    /// The standard deviation over the mean; `None` if all are 0.
    fn relative(&self) -> Option<f64> {
        let mean = self.sum / self.count;
        (mean > 0.0).then(|| (self.squares / self.count - mean * mean).max(0.0).sqrt() / mean)
    }
}

/// What was measured in a chip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chip {
    /// Its time per unit, over that without delays.
    pub time: f64,
    /// Its units by latency, if a quantile is compared.
    pub latencies: Counts,
    /// The units that were done in it; needed if latencies are compared.
    pub units: f64,
    /// Its length, in ns; needed if units last long.
    pub span: f64,
    /// The doses that were drawn: the number of the function, and a share of a unit.
    pub doses: Vec<(usize, f64)>,
    /// For each dose, the requested and the delivered delay of all calls, in ns.
    pub delivered: Vec<(f64, f64)>,
    /// Whether it came right after the chip before.
    pub follows: bool,
}

/// An experiment under way, or one that is replayed from its record.
#[derive(Debug)]
pub struct Design {
    rules: Rules,
    asked: Vec<Asked>,
    found: Vec<Found>,
    chips: Vec<Chip>,
    /// The units of each chip.
    units: Vec<f64>,
    /// All requested and delivered delays, by function.
    delivered: Vec<(f64, f64)>,
    /// The sensitivity of all functions together; `None` before the first estimate.
    any: Option<Estimated>,
    /// An upper bound on the sum of all sensitivities.
    together: f64,
    /// The quantile of latency that is compared, as a share of units, and what it is without delays, in ns;
    /// `None`: times per unit are compared.
    quantile: Option<(f64, f64)>,
    /// How long a unit lasts without delays, in ns; `None` if latencies are not compared.
    latency: Option<f64>,
    /// Whether parts of a unit differ, and a chip has some of them.
    parts_differ: bool,
    /// For each function: how much the requested delay, divided by the dose, differs between its chips. This
    /// ratio is proportional to the number of calls in the chip.
    calls: Vec<Spread>,
    /// The largest dose of one thread in any chip so far.
    tried: f64,
    /// The number of chips in the first turn; `None` while it lasts.
    all_after: Option<usize>,
    next_estimate: usize,
}

impl Design {
    /// The number of chips before the first estimate.
    pub const FIRST_ESTIMATE: usize = 2 * MIN_BETWEEN;

    /// A design without chips, for these functions.
    pub fn new(asked: Vec<Asked>, rules: Rules) -> Self {
        Self {
            rules,
            found: vec![Found::default(); asked.len()],
            any: None,
            together: asked.len() as f64,
            delivered: vec![(0.0, 0.0); asked.len()],
            all_after: is_one_turn(&asked).then_some(0),
            calls: vec![Spread::default(); asked.len()],
            asked,
            chips: Vec::new(),
            units: Vec::new(),
            quantile: None,
            latency: None,
            parts_differ: false,
            tried: 0.0,
            next_estimate: Self::FIRST_ESTIMATE,
        }
    }

    /// Compares a quantile of latency: the share of units that it is of, and its value without delays, in ns.
    #[must_use]
    pub fn with_quantile(self, quantile: Option<(f64, f64)>) -> Self {
        Self { quantile, ..self }
    }

    /// Compares latencies: their mean without delays, in ns.
    #[must_use]
    pub fn with_latency(self, latency: Option<f64>) -> Self {
        Self { latency, ..self }
    }

    /// Parts of a unit differ, and a chip has some of them, but not all. Then chips with a rare part are far
    /// off although nothing disturbed them. They count fully for functions that are called in rare parts.
    #[must_use]
    pub fn with_parts_of_units(self, parts_differ: bool) -> Self {
        Self { parts_differ, ..self }
    }

    /// What is known of each function.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// The number of chips so far.
    pub fn chips(&self) -> usize {
        self.chips.len()
    }

    /// Whether nothing is left to find out.
    pub fn is_decided(&self) -> bool {
        !self.found.iter().any(Found::is_open)
    }

    /// Delivered over requested delay of a function; 0 if none was requested: then nothing is known about it.
    fn delivery(&self, function: usize) -> f64 {
        let (asked, delivered) = self.delivered[function];
        if asked > 0.0 { delivered / asked } else { 0.0 }
    }

    /// Draws the doses of a chip, as shares of a unit.
    pub fn draw(&self, random: &mut Pcg64Mcg) -> Vec<(usize, f64)> {
        let bound = self.rules.max_slowdown;
        let may_show = |found: &Found| {
            let estimated = found.estimated.map(most_shown);
            let upper = match estimated {
                Some(upper) if found.on_then >= MIN_CHIPS => upper,
                // A few chips may prove that a larger share of a dose shows, but not that a smaller share
                // does.
                Some(upper) => upper.max(SHOWS[1]),
                None => SHOWS[1],
            };
            upper.clamp(SHOWS[0], SHOWS[2])
        };
        let shown = |(found, asked)| if self.has_turn(found, asked) { may_show(found) } else { 0.0 };
        let all: f64 = self.found.iter().zip(&self.asked).map(shown).sum();
        let scale = if all > self.together { self.together.max(MIN_TOGETHER) / all } else { 1.0 };
        let known: Vec<Known> = (self.found.iter().zip(&self.asked))
            .map(|(found, asked)| Known {
                active: self.has_turn(found, asked),
                may_show: may_show(found),
                likely_shows: may_show(found) * scale,
                part: self.part_of_dose(asked),
                thread: asked.thread,
            })
            .collect();
        let usual = Budget { dose: bound, shows: bound, thread: 2.0 * bound };
        let budget = Budget { thread: (self.tried + bound).min(2.0 * bound), ..usual };
        let doses = draw(&known, &chances(&known, usual), budget, random);
        doses.into_iter().enumerate().filter(|(_, dose)| *dose > 0.0).collect()
    }

    /// Whether a function may have a dose in the next chip: it is open, and has its turn.
    fn has_turn(&self, found: &Found, asked: &Asked) -> bool {
        found.is_open() && (asked.is_first || self.all_after.is_some())
    }

    /// The part of the usual dose that a function gets: its first doses are smaller.
    fn part_of_dose(&self, asked: &Asked) -> f64 {
        let begun = if asked.is_first { 0 } else { self.all_after.unwrap_or_default() };
        let chips = self.chips.len().saturating_sub(begun);
        RAMP.iter().find(|(until, _)| chips < *until).map_or(1.0, |(_, part)| *part)
    }

    /// Adds a chip. Returns whether there are new estimates.
    pub fn add(&mut self, chip: Chip) -> bool {
        for ((function, _), (asked, delivered)) in chip.doses.iter().zip(&chip.delivered) {
            self.delivered[*function].0 += asked;
            self.delivered[*function].1 += delivered;
            self.found[*function].on += 1;
        }
        for ((function, dose), (asked, _)) in chip.doses.iter().zip(&chip.delivered) {
            self.calls[*function].add(asked / dose);
        }
        let mut of_threads: BTreeMap<u32, f64> = BTreeMap::new();
        for (function, dose) in &chip.doses {
            *of_threads.entry(self.asked[*function].thread).or_default() += dose;
        }
        self.tried = of_threads.into_values().fold(self.tried, f64::max);
        self.units.push(chip.units);
        self.chips.push(chip);
        let is_due = self.chips.len() >= self.next_estimate;
        if is_due {
            self.estimate();
        }
        let is_open = |(found, asked): (&Found, &Asked)| asked.is_first && found.verdict.is_none();
        let is_first_over = self.chips.len() >= FIRST_TURN.saturating_mul(self.rules.min_chips)
            || !self.found.iter().zip(&self.asked).any(is_open);
        if self.all_after.is_none() && is_first_over {
            self.all_after = Some(self.chips.len());
        }
        is_due
    }

    /// Estimates sensitivities, and gives the verdicts that are possible now.
    pub fn estimate(&mut self) {
        let (rows, columns) = (self.chips.len(), self.asked.len());
        if columns == 0 {
            return;
        }
        let growth = if columns > MANY { GROWTH_OF_MANY } else { GROWTH };
        self.next_estimate = (rows + MIN_BETWEEN).max((rows as f64 * growth) as usize);
        let (times, doses) = (self.times(), self.doses());
        let total = DMatrix::from_fn(rows, 1, |row, _| doses.row(row).sum());
        let mut reach = EARLY_REACH;
        let influence = self.influence();
        if let Some((best, all)) = best_fit(&times, &total, self.fitting()) {
            let upper = columns as f64 * (all.estimates[0] + ONE_SIDED_95 * all.errors[0]);
            self.together = upper.clamp(MIN_TOGETHER, SHOWS[1] * columns as f64);
            self.any = Some(widened(estimated(&all, 0), influence));
            reach = best;
        }
        let is_open = |at: &usize| self.found[*at].is_open() && self.found[*at].on > 0;
        let open: Vec<usize> = (0..columns).filter(is_open).collect();
        let has_enough = rows as f64 > CHIPS_OF_EACH * open.len() as f64 + CHIPS_BESIDES;
        let estimates = |fitting: Fitting<'_>| -> Vec<Option<Estimated>> {
            if has_enough && open.len() <= MAX_TOGETHER {
                self.fit_each(&times, &doses, &open, reach, fitting)
            } else {
                open.iter().map(|at| alone(&times, &doses, &total, *at, fitting)).collect()
            }
        };
        let mut estimated = estimates(self.fitting());
        let are_rare: Vec<bool> = open.iter().map(|at| self.is_in_rare_parts(*at)).collect();
        if are_rare.contains(&true) {
            let of_rare = estimates(Fitting { far_off: FarOff::AsOthers, ..self.fitting() });
            let rare = estimated.iter_mut().zip(of_rare).zip(&are_rare).filter(|(_, is_rare)| **is_rare);
            rare.for_each(|((estimated, of_rare), _)| *estimated = of_rare);
        }
        let has_enough_beyond = influence.is_none_or(|of| of.beyond() >= MIN_BEYOND);
        for (at, estimated) in open.into_iter().zip(estimated) {
            let found = self.found[at];
            let is_known = |of: &Estimated| of.error.is_finite() && of.error > 0.0;
            let Some(of) = estimated.filter(is_known).map(|of| widened(of, influence)) else { continue };
            self.found[at].estimated = Some(of);
            self.found[at].on_then = found.on;
            let has_enough = rows >= self.rules.min_chips
                && found.on.min(rows - found.on) >= MIN_CHIPS
                && has_enough_beyond;
            if found.verdict.is_none() && has_enough {
                let verdict = self.rules.verdict(columns, self.asked[at].share, of);
                self.found[at].verdict = verdict.map(|verdict| (verdict, rows));
            }
        }
    }

    /// Whether a function is called in parts of units that few chips have.
    fn is_in_rare_parts(&self, function: usize) -> bool {
        self.parts_differ && self.calls[function].relative().is_some_and(|spread| spread > RARE)
    }

    /// The sensitivity of all functions together.
    pub fn any(&self) -> Option<Estimated> {
        self.any
    }
}

/// Whether all functions have their turn at the same time.
fn is_one_turn(asked: &[Asked]) -> bool {
    asked.windows(2).all(|two| two[0].is_first == two[1].is_first)
}

/// The most that may show of a function's dose. If the estimate is mostly noise, only its lower end counts:
/// after an estimate that is too high by chance, doses would be so small that later chips could not correct
/// it.
fn most_shown(of: Estimated) -> f64 {
    if of.error > MAX_ERROR {
        (of.sensitivity - SAFE * of.error).max(SHOWS[1])
    } else {
        of.sensitivity + SAFE * of.error
    }
}

#[cfg(test)]
mod tests;
