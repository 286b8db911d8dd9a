//! What is delayed next, and what follows so far. A design is told of chips one by one, and does no input or
//! output: the same chips give the same verdicts, in an experiment under way and from its record.

use std::collections::{BTreeMap, BTreeSet};

use nalgebra::DMatrix;
use rand_pcg::Pcg64Mcg;

pub use super::verdict::{Estimated, Rules, Verdict};
use super::{
    carry_over,
    draw::{Budget, Known, chances, draw},
    regression::{Fit, best_fit, fit, fit_with},
};

/// Chips between two estimates, at least.
const MIN_BETWEEN: usize = 16;
/// And so many times as many chips as at the last one.
const GROWTH: f64 = 1.15;
/// With more functions than so many, a look takes long, by the square of their number: then there are fewer.
const GROWTH_OF_MANY: f64 = 1.6;
const MANY: usize = 100;
/// More functions than so many are not fitted together, but each against the sum of the others.
const MAX_TOGETHER: usize = 500;
/// A verdict needs so many chips with the function on, and so many with it off.
const MIN_CHIPS: usize = 10;
/// A normal value is below so many deviations in 95 of 100 cases.
const ONE_SIDED_95: f64 = 1.64;
/// What may show of a function's dose is taken to be so many standard errors above the estimate.
const SAFE: f64 = 2.5;
/// The share of a dose that is taken to show: at least; where nothing is known; and at most.
const SHOWS: [f64; 3] = [0.02, 1.2, 50.0];
/// A function that matters is tested on until its standard error is below this, or of a large sensitivity,
/// below this part of it. A limit that goes by the estimate alone stops where that is too high by chance.
const PRECISE: f64 = 0.07;
const PRECISE_OF_LARGE: f64 = 0.05;
/// An estimate with a larger standard error bounds nothing.
const MAX_ERROR: f64 = 0.4;
/// The least that all functions together are taken to show, as a sensitivity.
const MIN_TOGETHER: f64 = 0.3;
/// The reach of the baseline while chips are too few for a fit of all functions.
const EARLY_REACH: usize = 6;
/// A fit of all functions needs so many chips for each, and so many more.
const CHIPS_OF_EACH: f64 = 1.5;
const CHIPS_BESIDES: f64 = 20.0;
/// The first doses, as a part of the usual one; the next; and after how many chips each ends.
const RAMP: [(usize, f64); 2] = [(16, 0.25), (32, 0.5)];
/// The functions whose turn is first have it for so many times the chips that a verdict needs.
const FIRST_TURN: usize = 4;

/// A function, or a group of them, that the experiment asks about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Its own time as a share of a unit; `None` where that is not known.
    pub share: Option<f64>,
    /// The thread that it mostly runs on, numbered from 0.
    pub thread: u32,
    /// Whether it has a turn from the first chip on, as the service's own code has. All others have theirs
    /// when these are decided, or have had their time.
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
    /// Of these, the ones that the estimate is from.
    pub on_then: usize,
}

impl Found {
    /// Whether more chips are to tell of it: there is no verdict, or it matters by an amount that is not
    /// known well.
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

/// What was measured in a chip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chip {
    /// Its time per unit, in units without delays.
    pub time: f64,
    /// Doses that were drawn, by number of the function, as shares of a unit.
    pub doses: Vec<(usize, f64)>,
    /// For each of them, the delays that its calls were to get, and those that they got, in ns.
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
    /// What was asked and delivered in all, by function.
    delivered: Vec<(f64, f64)>,
    /// What a dose shows, whichever function has it, where that is known.
    any: Option<Estimated>,
    /// The most that all doses together show, as the sum of sensitivities.
    together: f64,
    /// The greatest dose on one thread that a chip has had.
    tried: f64,
    /// The number of chips before those in which all functions have a turn.
    all_after: Option<usize>,
    next_look: usize,
}

impl Design {
    /// Chips before the first verdict, at least.
    pub const FIRST_LOOK: usize = 2 * MIN_BETWEEN;

    /// Asks about these functions.
    pub fn new(asked: Vec<Asked>, rules: Rules) -> Self {
        Self {
            rules,
            found: vec![Found::default(); asked.len()],
            any: None,
            together: asked.len() as f64,
            delivered: vec![(0.0, 0.0); asked.len()],
            all_after: is_one_turn(&asked).then_some(0),
            asked,
            chips: Vec::new(),
            tried: 0.0,
            next_look: Self::FIRST_LOOK,
        }
    }

    /// What is known of each function.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// How many chips it was told of.
    pub fn chips(&self) -> usize {
        self.chips.len()
    }

    /// Whether nothing is left to find out.
    pub fn is_decided(&self) -> bool {
        !self.found.iter().any(Found::is_open)
    }

    /// The share of its delays that the calls of a function got; 0 if none asked for any. Then nothing is
    /// known of it.
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
                // A few chips may show that it is more, but not that it is less.
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

    /// Whether it is the turn of a function that is open.
    fn has_turn(&self, found: &Found, asked: &Asked) -> bool {
        found.is_open() && (asked.is_first || self.all_after.is_some())
    }

    /// The first doses of a function are smaller: this part of the usual one.
    fn part_of_dose(&self, asked: &Asked) -> f64 {
        let begun = if asked.is_first { 0 } else { self.all_after.unwrap_or_default() };
        let chips = self.chips.len().saturating_sub(begun);
        RAMP.iter().find(|(until, _)| chips < *until).map_or(1.0, |(_, part)| *part)
    }

    /// Takes in a chip. Returns whether there are new estimates.
    pub fn add(&mut self, chip: Chip) -> bool {
        for ((function, _), (asked, delivered)) in chip.doses.iter().zip(&chip.delivered) {
            self.delivered[*function].0 += asked;
            self.delivered[*function].1 += delivered;
            self.found[*function].on += 1;
        }
        let mut of_threads: BTreeMap<u32, f64> = BTreeMap::new();
        for (function, dose) in &chip.doses {
            *of_threads.entry(self.asked[*function].thread).or_default() += dose;
        }
        self.tried = of_threads.into_values().fold(self.tried, f64::max);
        self.chips.push(chip);
        let is_due = self.chips.len() >= self.next_look;
        if is_due {
            self.look();
        }
        let is_open = |(found, asked): (&Found, &Asked)| asked.is_first && found.verdict.is_none();
        let is_first_over = self.chips.len() >= FIRST_TURN * self.rules.min_chips
            || !self.found.iter().zip(&self.asked).any(is_open);
        if self.all_after.is_none() && is_first_over {
            self.all_after = Some(self.chips.len());
        }
        is_due
    }

    /// Estimates, and decides what can be.
    pub fn look(&mut self) {
        let (rows, columns) = (self.chips.len(), self.asked.len());
        if columns == 0 {
            return;
        }
        let growth = if columns > MANY { GROWTH_OF_MANY } else { GROWTH };
        self.next_look = (rows + MIN_BETWEEN).max((rows as f64 * growth) as usize);
        let (times, doses) = (self.times(), self.doses());
        let total = DMatrix::from_fn(rows, 1, |row, _| doses.row(row).sum());
        let mut reach = EARLY_REACH;
        if let Some((best, all)) = best_fit(&times, &total) {
            let upper = columns as f64 * (all.estimates[0] + ONE_SIDED_95 * all.errors[0]);
            self.together = upper.clamp(MIN_TOGETHER, SHOWS[1] * columns as f64);
            self.any = Some(estimated(&all, 0));
            reach = best;
        }
        let is_open = |at: &usize| self.found[*at].is_open() && self.found[*at].on > 0;
        let open: Vec<usize> = (0..columns).filter(is_open).collect();
        let has_enough = rows as f64 > CHIPS_OF_EACH * open.len() as f64 + CHIPS_BESIDES;
        let estimated = if has_enough && open.len() <= MAX_TOGETHER {
            self.of_each(&times, &doses, &open, reach)
        } else {
            open.iter().map(|at| alone(&times, &doses, &total, *at)).collect()
        };
        for (at, estimated) in open.into_iter().zip(estimated) {
            let found = self.found[at];
            let is_known = |of: &Estimated| of.error.is_finite() && of.error > 0.0;
            let Some(of) = estimated.filter(is_known) else { continue };
            self.found[at].estimated = Some(of);
            self.found[at].on_then = found.on;
            let has_enough = rows >= self.rules.min_chips && found.on.min(rows - found.on) >= MIN_CHIPS;
            if found.verdict.is_none() && has_enough {
                let verdict = self.rules.verdict(columns, self.asked[at].share, of);
                self.found[at].verdict = verdict.map(|verdict| (verdict, rows));
            }
        }
    }

    /// Each undecided function beside the others. What was decided has left: its estimate is taken out, and
    /// what that may be off by is common to all of it.
    fn of_each(
        &self,
        times: &[f64],
        doses: &DMatrix<f64>,
        open: &[usize],
        reach: usize,
    ) -> Vec<Option<Estimated>> {
        let decided: Vec<(usize, f64)> = (self.found.iter().enumerate())
            .filter(|(_, found)| !found.is_open())
            .filter_map(|(at, found)| Some((at, found.estimated?.sensitivity)))
            .collect();
        let sum = |row: usize, of: &dyn Fn(f64) -> f64| -> f64 {
            decided.iter().map(|(at, sensitivity)| of(*sensitivity) * doses[(row, *at)]).sum()
        };
        let times: Vec<f64> =
            times.iter().enumerate().map(|(row, time)| time - sum(row, &|sensitivity| sensitivity)).collect();
        let columns = open.len() + usize::from(!decided.is_empty());
        let of = |row: usize, column: usize| match open.get(column) {
            Some(at) => doses[(row, *at)],
            None => sum(row, &|_| 1.0),
        };
        let fit = fit_with(&times, &DMatrix::from_fn(times.len(), columns, of), reach);
        (0..open.len()).map(|column| fit.as_ref().map(|fit| estimated(fit, column))).collect()
    }

    /// What a dose shows, whichever function has it.
    pub fn any(&self) -> Option<Estimated> {
        self.any
    }

    /// What doses of these functions show together, for each of these groups; `None` where too few chips
    /// tell.
    pub fn together(&self, groups: &[Vec<usize>]) -> Option<Vec<Estimated>> {
        let rows: Vec<usize> = (0..self.chips.len()).collect();
        self.of_groups(groups, &self.doses(), &rows, &self.times())
    }

    /// How values of these chips move with the doses of each of these groups. Functions that are in none of
    /// them make one more.
    fn of_groups(
        &self,
        groups: &[Vec<usize>],
        doses: &DMatrix<f64>,
        rows: &[usize],
        values: &[f64],
    ) -> Option<Vec<Estimated>> {
        let grouped: BTreeSet<&usize> = groups.iter().flatten().collect();
        let rest: Vec<usize> = (0..self.asked.len()).filter(|at| !grouped.contains(at)).collect();
        let rest = (!rest.is_empty()).then_some(&rest);
        let columns: Vec<&Vec<usize>> = groups.iter().chain(rest).collect();
        let sum = |row: usize, column: usize| columns[column].iter().map(|at| doses[(rows[row], *at)]).sum();
        let fit = fit(values, &DMatrix::from_fn(rows.len(), columns.len(), sum))?;
        Some((0..groups.len()).map(|column| estimated(&fit, column)).collect())
    }

    /// Times per unit without what the doses added, by the estimates.
    pub fn times_without_doses(&self) -> Vec<f64> {
        let sensitivity = |at: usize| self.found[at].estimated.map_or(0.0, |of| of.sensitivity);
        let without = |chip: &Chip| {
            let added: f64 =
                chip.doses.iter().map(|(at, dose)| sensitivity(*at) * dose * self.delivery(*at)).sum();
            chip.time - added
        };
        self.chips.iter().map(without).collect()
    }

    /// How other numbers of the chips move with the doses of these functions, by [`Design::doses`]: `None`
    /// where too few chips have one. The doses of all other functions count together.
    pub(crate) fn moves(
        &self,
        doses: &DMatrix<f64>,
        values: &[Option<f64>],
        functions: &[usize],
    ) -> Option<Vec<Estimated>> {
        let rows: Vec<usize> = (0..self.chips.len()).filter(|row| values[*row].is_some()).collect();
        let columns = functions.len() + usize::from(functions.len() < self.asked.len());
        let is_enough = rows.len() as f64 > CHIPS_OF_EACH * columns as f64 + CHIPS_BESIDES;
        if functions.is_empty() || columns > MAX_TOGETHER || !is_enough {
            return None;
        }
        let values: Vec<f64> = rows.iter().filter_map(|row| values[*row]).collect();
        let alone: Vec<Vec<usize>> = functions.iter().map(|at| vec![*at]).collect();
        self.of_groups(&alone, doses, &rows, &values)
    }

    fn times(&self) -> Vec<f64> {
        self.chips.iter().map(|chip| chip.time).collect()
    }

    /// Doses as they show: those that were drawn, partly in the chip after.
    pub(crate) fn doses(&self) -> DMatrix<f64> {
        let drawn = self.drawn();
        let follows: Vec<bool> = self.chips.iter().map(|chip| chip.follows).collect();
        // Estimates that noise made would find a share in noise: only what was shown to matter counts by its
        // own.
        let matters = |found: &Found| {
            let is_shown = matches!(found.verdict, Some((Verdict::Matters, _)));
            found.estimated.filter(|_| is_shown).map_or(0.0, |of| of.sensitivity)
        };
        let mut sensitivities: Vec<f64> = self.found.iter().map(matters).collect();
        if sensitivities.iter().all(|of| *of == 0.0) {
            sensitivities.fill(1.0);
        }
        let share = carry_over::share(&self.times(), &drawn, &sensitivities, &follows);
        carry_over::shifted(&drawn, &follows, share)
    }

    /// The doses of all chips, as they were drawn, by what was delivered of each function's in all.
    fn drawn(&self) -> DMatrix<f64> {
        let mut drawn = DMatrix::zeros(self.chips.len(), self.asked.len());
        for (row, chip) in self.chips.iter().enumerate() {
            for (function, dose) in &chip.doses {
                drawn[(row, *function)] = dose * self.delivery(*function);
            }
        }
        drawn
    }
}

/// Whether all functions have their turn at once.
fn is_one_turn(asked: &[Asked]) -> bool {
    asked.windows(2).all(|two| two[0].is_first == two[1].is_first)
}

/// The most that may show of a function's dose. Where the estimate is mostly noise, only what is sure counts:
/// after an estimate that is too high by chance doses would be small, and later chips could not correct it.
fn most_shown(of: Estimated) -> f64 {
    if of.error > MAX_ERROR {
        (of.sensitivity - SAFE * of.error).max(SHOWS[1])
    } else {
        of.sensitivity + SAFE * of.error
    }
}

fn estimated(fit: &Fit, at: usize) -> Estimated {
    Estimated { sensitivity: fit.estimates[at], error: fit.errors[at], freedom: fit.freedoms[at] }
}

/// A function against all others together, while chips are too few for a fit of each.
fn alone(times: &[f64], doses: &DMatrix<f64>, total: &DMatrix<f64>, at: usize) -> Option<Estimated> {
    let own = doses.column(at);
    if own.iter().all(|dose| *dose == 0.0) {
        return None;
    }
    let two = DMatrix::from_fn(
        doses.nrows(),
        2,
        |row, column| {
            if column == 0 { own[row] } else { total[row] - own[row] }
        },
    );
    fit_with(times, &two, EARLY_REACH).map(|fit| estimated(&fit, 0))
}

#[cfg(test)]
mod tests;
