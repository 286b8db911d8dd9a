//! The fits of a design, and the times and doses that they compare.

use std::collections::BTreeSet;

use nalgebra::DMatrix;

use super::{
    CHIPS_BESIDES, CHIPS_OF_EACH, Chip, Design, EARLY_REACH, Estimated, Found, MAX_TOGETHER, Verdict,
};
use crate::chips::{
    carry_over,
    influence::Influence,
    regression::{FarOff, Fit, Fitting, fit, fit_with},
};

/// Units that last longer than this part of a chip end in other chips than they began in.
const LONG: f64 = 0.5;
/// Few units last longer than this many times the mean.
const LONGEST: f64 = 2.0;
/// Doses of at most this many chips before a chip count to it.
const MAX_LAGS: usize = 20;

impl Design {
    /// Fits all open functions together. Subtracts the doses of the decided ones that show, by their
    /// estimates. One column of their doses takes up the errors of these estimates.
    pub(super) fn fit_each(
        &self,
        times: &[f64],
        doses: &DMatrix<f64>,
        open: &[usize],
        reach: usize,
        fitting: Fitting<'_>,
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
        let fit = fit_with(&times, &DMatrix::from_fn(times.len(), columns, of), reach, fitting);
        (0..open.len()).map(|column| fit.as_ref().map(|fit| estimated(fit, column))).collect()
    }

    /// The sensitivity of each of these groups of functions; `None` if there are too few chips.
    pub fn together(&self, groups: &[Vec<usize>]) -> Option<Vec<Estimated>> {
        let rows: Vec<usize> = (0..self.chips.len()).collect();
        let found = self.fit_groups(groups, &self.doses(), &rows, &self.times(), self.fitting())?;
        let influence = self.influence();
        Some(found.into_iter().map(|of| widened(of, influence)).collect())
    }

    /// How values of these chips move with the doses of each of these groups. The functions that are in no
    /// group are one more group.
    fn fit_groups(
        &self,
        groups: &[Vec<usize>],
        doses: &DMatrix<f64>,
        rows: &[usize],
        values: &[f64],
        fitting: Fitting<'_>,
    ) -> Option<Vec<Estimated>> {
        let grouped: BTreeSet<&usize> = groups.iter().flatten().collect();
        let rest: Vec<usize> = (0..self.asked.len()).filter(|at| !grouped.contains(at)).collect();
        let rest = (!rest.is_empty()).then_some(&rest);
        let columns: Vec<&Vec<usize>> = groups.iter().chain(rest).collect();
        let sum = |row: usize, column: usize| columns[column].iter().map(|at| doses[(rows[row], *at)]).sum();
        let fit = fit(values, &DMatrix::from_fn(rows.len(), columns.len(), sum), fitting)?;
        Some((0..groups.len()).map(|column| estimated(&fit, column)).collect())
    }

    /// Times per unit, minus what the doses added by the estimates.
    pub fn times_without_doses(&self) -> Vec<f64> {
        let sensitivity = |at: usize| self.found[at].estimated.map_or(0.0, |of| of.sensitivity);
        let without = |(chip, time): (&Chip, f64)| {
            let added: f64 =
                chip.doses.iter().map(|(at, dose)| sensitivity(*at) * dose * self.delivery(*at)).sum();
            time - added
        };
        self.chips.iter().zip(self.times()).map(without).collect()
    }

    /// How other numbers of the chips move with the doses of these functions. `doses` are those of
    /// [`Design::doses`]. `None` if too few chips have a number. The doses of all other functions count
    /// together.
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
        self.fit_groups(
            &alone,
            doses,
            &rows,
            &values,
            Fitting { far_off: FarOff::Less, units: &[], ..self.fitting() },
        )
    }

    /// The time per unit of each chip or, if a quantile is compared, the chip's influence on it.
    pub(super) fn times(&self) -> Vec<f64> {
        let influence = self.influence().zip(self.quantile);
        let of = |chip: &Chip| {
            let mean =
                influence.and_then(|(influence, (_, unit))| Some(influence.mean(&chip.latencies)? / unit));
            mean.unwrap_or(chip.time)
        };
        self.chips.iter().map(of).collect()
    }

    /// The compared quantile, of the units of all chips.
    pub(super) fn influence(&self) -> Option<Influence> {
        let (share, _) = self.quantile?;
        Influence::new(
            share,
            self.rules.max_slowdown,
            self.chips.iter().map(|chip| chip.latencies.as_slice()),
        )
    }

    /// How chips are fitted. A delay may move the end of a long unit into a later chip. Then one chip lacks
    /// units, and the next has them beside its own. So chips weigh by their units then, as they do in the
    /// quantile of all units.
    pub(super) fn fitting(&self) -> Fitting<'_> {
        let far_off = if self.quantile.is_some() { FarOff::AsOthers } else { FarOff::Less };
        let lags = self.lags();
        let units = if self.quantile.is_some() || lags > 0 { &self.units[..] } else { &[] };
        Fitting { far_off, lags, units }
    }

    /// How long a unit lasts, in chips, if latencies are compared.
    fn chips_of_unit(&self) -> Option<f64> {
        let spans = self.chips.iter().map(|chip| chip.span);
        let span = spans.sum::<f64>() / self.chips.len().max(1) as f64;
        self.latency.filter(|_| span > 0.0).map(|latency| latency / span)
    }

    /// In how many chips before its last one a unit may have been under way; 0 if units are short.
    fn lags(&self) -> usize {
        match self.chips_of_unit() {
            Some(chips) if chips > LONG => ((LONGEST * chips).ceil() as usize).min(MAX_LAGS),
            _ => 0,
        }
    }

    /// The doses that show in each chip: the drawn ones, of which a part shows in the next chip.
    pub(crate) fn doses(&self) -> DMatrix<f64> {
        let drawn = self.drawn();
        let follows: Vec<bool> = self.chips.iter().map(|chip| chip.follows).collect();
        let lags = self.lags();
        if lags > 0 {
            return carry_over::windowed(&drawn, &follows, lags);
        }
        // With estimates that are noise, the share would be noise too: only functions that matter count by
        // their own estimates.
        let matters = |found: &Found| {
            let is_shown = matches!(found.verdict, Some((Verdict::Matters, _)));
            found.estimated.filter(|_| is_shown).map_or(0.0, |of| of.sensitivity)
        };
        let mut sensitivities: Vec<f64> = self.found.iter().map(matters).collect();
        if sensitivities.iter().all(|of| *of == 0.0) {
            sensitivities.fill(1.0);
        }
        let share = carry_over::share(&self.times(), &drawn, &sensitivities, &follows, self.fitting());
        // The part of their time that units spent in the chip before, if they end at any time.
        let before = self.chips_of_unit().unwrap_or_default() / 2.0;
        carry_over::shifted(&drawn, &follows, share.max(before))
    }

    /// The doses that were drawn in all chips, times the share of all its doses that each function got.
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

pub(super) fn estimated(fit: &Fit, at: usize) -> Estimated {
    Estimated { sensitivity: fit.estimates[at], error: fit.errors[at], freedom: fit.freedoms[at] }
}

/// An estimate whose error includes that of the density at the quantile.
pub(super) fn widened(of: Estimated, influence: Option<Influence>) -> Estimated {
    let density = influence.map_or(0.0, |influence| influence.error());
    Estimated { error: of.error.hypot(of.sensitivity * density), ..of }
}

/// Fits a function against the sum of all others, while there are too few chips for a fit of each.
pub(super) fn alone(
    times: &[f64],
    doses: &DMatrix<f64>,
    total: &DMatrix<f64>,
    at: usize,
    fitting: Fitting<'_>,
) -> Option<Estimated> {
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
    fit_with(times, &two, EARLY_REACH, fitting).map(|fit| estimated(&fit, 0))
}
