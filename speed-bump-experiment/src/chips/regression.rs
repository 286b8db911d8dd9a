//! The estimate: time per unit, regressed on the doses that were drawn, over all chips.
//!
//! The doses are the *drawn* ones, and never the delivered ones: a slow chip has fewer calls and less delay,
//! and would make its own dose look harmless. The [`baseline`] subtracts the machine's pace; its reach is the
//! one with the smallest errors. Outliers weigh less (Huber 1964), and errors hold even if chips vary by
//! different amounts (MacKinnon and White 1985, HC3).
//!
//! Such errors are estimated from the few chips in which a function has a dose, and have few degrees of
//! freedom accordingly (Satterthwaite 1946; Bell and McCaffrey 2002). They are never smaller than errors that
//! assume that all chips vary alike: otherwise, experiments would stop when an error is too small by chance.
//! If doses of several chips show in one, residuals of neighbours are correlated, and errors include that.

use nalgebra::{Cholesky, DMatrix, DVector};

use super::baseline;
use crate::outliers;

/// Residuals of more than this many deviations weigh less. 2.5 keeps 98 % of the efficiency under a normal
/// distribution.
const HUBER: f64 = 2.5;
/// Rounds of reweighting.
const ROUNDS: usize = 4;
/// Rounds of reweighting with more than [`MANY`] columns.
const ROUNDS_OF_MANY: usize = 1;
const MANY: usize = 100;
/// The least degrees of freedom that are assumed.
const MIN_FREEDOM: f64 = 5.0;
/// The largest leverage of a chip that counts: the part of its residual that the fit has taken up.
const MAX_LEVERAGE: f64 = 0.9;
/// Added to the diagonal of a matrix, as a share of its largest element: keeps it invertible if a column is
/// nearly zero.
const RIDGE: f64 = 1e-10;

/// How far a [`baseline`] may reach, in chips on each side.
const REACHES: [usize; 4] = [2, 6, 20, 80];
/// The weight of a chip without units.
const MIN_WEIGHT: f64 = 1e-3;
/// A baseline reaches at least this many times as far as a dose.
const REACH_OF_LAGS: usize = 3;

/// The weight of outliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarOff {
    /// Less: a moment in which the machine was disturbed says nothing about doses.
    Less,
    /// As much as others: the few chips with units beyond a quantile move the quantile.
    AsOthers,
}

/// How chips are fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitting<'a> {
    /// The weight of outliers.
    pub far_off: FarOff,
    /// Doses of a chip are the mean of its own and those of this many chips before it. Residuals of chips so
    /// near each other are correlated.
    pub lags: usize,
    /// The units of each chip, which are its weight; none: all chips weigh alike.
    pub units: &'a [f64],
}

impl Fitting<'_> {
    /// For times per unit, if doses hardly show in other chips.
    pub const USUAL: Self = Self { far_off: FarOff::Less, lags: 0, units: &[] };

    /// The weight of each chip, 1 on average.
    fn weights(self, chips: usize) -> Vec<f64> {
        let mean = self.units.iter().sum::<f64>() / self.units.len().max(1) as f64;
        if self.units.len() != chips || mean <= 0.0 {
            return vec![1.0; chips];
        }
        // The baseline needs some weight around each chip.
        self.units.iter().map(|units| (units / mean).max(MIN_WEIGHT)).collect()
    }

    /// The least reach of a baseline: a shorter one would take effects that show later for the machine's
    /// pace.
    fn least_reach(self) -> usize {
        if self.lags == 0 { 0 } else { REACH_OF_LAGS * (self.lags + 1) }
    }
}

/// Estimates by column of the doses.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The added time for a dose of one.
    pub estimates: Vec<f64>,
    /// Their standard errors.
    pub errors: Vec<f64>,
    /// Degrees of freedom that the errors were estimated with.
    pub freedoms: Vec<f64>,
}

/// Fits with the reach of the baseline that has the smallest errors. `times` and `doses` have a row for each
/// chip, and `doses` has a column for each function. `None` if there are too few chips.
pub fn fit(times: &[f64], doses: &DMatrix<f64>, fitting: Fitting<'_>) -> Option<Fit> {
    best_fit(times, doses, fitting).map(|(_, fit)| fit)
}

/// [`fit`], which also returns the reach.
pub fn best_fit(times: &[f64], doses: &DMatrix<f64>, fitting: Fitting<'_>) -> Option<(usize, Fit)> {
    let is_fit = |reach: &&usize| **reach >= fitting.least_reach() && 2 * **reach < times.len();
    let fits = REACHES.iter().filter(is_fit).filter_map(|reach| {
        let fit = fit_with(times, doses, *reach, fitting)?;
        let size = fit.errors.iter().map(|error| (error + 1e-9).ln()).sum::<f64>();
        Some((size, *reach, fit))
    });
    fits.min_by(|(one, ..), (other, ..)| one.total_cmp(other)).map(|(_, reach, fit)| (reach, fit))
}

/// Fits with one reach of the baseline.
pub fn fit_with(times: &[f64], doses: &DMatrix<f64>, reach: usize, fitting: Fitting<'_>) -> Option<Fit> {
    fit_with_weights(times, doses, reach.max(fitting.least_reach()), fitting).map(|(fit, _)| fit)
}

/// [`fit_with`], which also returns the weights of the chips.
fn fit_with_weights(
    times: &[f64],
    doses: &DMatrix<f64>,
    reach: usize,
    fitting: Fitting<'_>,
) -> Option<(Fit, Vec<f64>)> {
    let (rows, columns) = doses.shape();
    if rows != times.len() || rows <= columns + 2 || columns == 0 {
        return None;
    }
    let by_units = fitting.weights(rows);
    let mut weights = by_units.clone();
    let mut rounds = match fitting.far_off {
        FarOff::Less => ROUNDS,
        FarOff::AsOthers => 1,
    };
    if columns > MANY && fitting.far_off == FarOff::Less {
        // The time of a round grows with the square of the columns. A chip that is an outlier is also one if
        // all doses are added up.
        let together = DMatrix::from_fn(rows, 1, |row, _| doses.row(row).sum());
        weights = fit_with_weights(times, &together, reach, fitting)?.1;
        rounds = ROUNDS_OF_MANY;
    }
    for round in 1.. {
        let mut y = times.to_vec();
        baseline::subtract(&mut y, &weights, reach);
        let mut x = doses.clone();
        for mut column in x.column_iter_mut() {
            baseline::subtract(column.as_mut_slice(), &weights, reach);
        }
        let mut weighted = x.clone();
        for (mut row, weight) in weighted.row_iter_mut().zip(&weights) {
            row *= *weight;
        }
        let y = DVector::from_vec(y);
        // We do not use `tr_mul`, which is slower because it goes column by column.
        let mut gram = weighted.transpose() * &x;
        let ridge = RIDGE * gram.diagonal().max().max(f64::MIN_POSITIVE);
        for at in 0..columns {
            gram[(at, at)] += ridge;
        }
        let inverse = Cholesky::new(gram)?.inverse();
        let estimates = &inverse * weighted.tr_mul(&y);
        let residuals = &y - &x * &estimates;
        if round < rounds {
            let mut far: Vec<f64> = residuals.iter().map(|residual| residual.abs()).collect();
            let deviation = outliers::deviation(&mut far);
            for ((weight, residual), of_units) in weights.iter_mut().zip(residuals.iter()).zip(&by_units) {
                *weight = of_units * (HUBER * deviation / residual.abs().max(f64::MIN_POSITIVE)).min(1.0);
            }
            continue;
        }
        let local = 1.0 / (2.0 * reach as f64 + 1.0);
        let spread = &x * &inverse;
        let scores: Vec<f64> = (0..rows)
            .map(|at| {
                let leverage = weights[at] * spread.row(at).dot(&x.row(at)) + local;
                weights[at] * residuals[at] / (1.0 - leverage.min(MAX_LEVERAGE))
            })
            .collect();
        let left = rows as f64 * (1.0 - local / 2.0) - columns as f64;
        let mean = scores.iter().map(|score| score * score).sum::<f64>() / rows as f64;
        let of = |column: usize| {
            let (mut robust, mut plain, mut squares, mut fourths) = (0.0, 0.0, 0.0, 0.0);
            let parts: Vec<f64> =
                scores.iter().zip(spread.column(column)).map(|(score, share)| score * share).collect();
            for (part, share) in parts.iter().zip(spread.column(column)) {
                let square = share * share;
                robust += part * part;
                plain += mean * square;
                squares += square;
                fourths += square * square;
            }
            // Newey and West 1987.
            for lag in 1..=fitting.lags.min(rows) {
                let weight = 1.0 - lag as f64 / (fitting.lags + 1) as f64;
                let alike: f64 = parts.iter().zip(&parts[lag..]).map(|(one, other)| one * other).sum();
                robust += 2.0 * weight * alike;
            }
            (f64::max(robust, plain).sqrt(), (squares * squares / fourths).min(left).max(MIN_FREEDOM))
        };
        let (errors, freedoms) = (0..columns).map(of).unzip();
        return Some((Fit { estimates: estimates.iter().copied().collect(), errors, freedoms }, weights));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rand::{RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::chips::world::normal;

    /// Chips that vary by a tenth; each function has its dose in one chip of `one_in`.
    fn fitted(one_in: &[u32]) -> Fit {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let mut dose = |column: usize| if random.random_ratio(1, one_in[column]) { 0.2 } else { 0.0 };
        let doses = DMatrix::from_fn(600, one_in.len(), |_, column| dose(column));
        let times: Vec<f64> =
            (0..600).map(|row| 1.0 + doses.row(row).sum() + 0.1 * normal(&mut random)).collect();
        fit(&times, &doses, Fitting::USUAL).unwrap()
    }

    #[test]
    fn what_has_a_dose_in_few_chips_has_few_degrees_of_freedom() {
        let found = fitted(&[2, 40]);
        assert!(found.freedoms[0] > 200.0, "{found:?}");
        assert!((10.0..30.0).contains(&found.freedoms[1]), "{found:?}");
        assert!(found.errors[1] > 2.0 * found.errors[0], "{found:?}");
    }

    #[test]
    fn many_functions_have_the_estimates_that_few_have() {
        let found = fitted(&[30; 150]);
        let mean = found.estimates.iter().sum::<f64>() / 150.0;
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
        let near =
            found.estimates.iter().zip(&found.errors).filter(|(of, error)| (*of - 1.0).abs() < 3.0 * *error);
        assert!(near.count() > 140);
    }
}
