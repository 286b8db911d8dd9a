//! The estimate: time per unit, regressed on the doses that were drawn, over all chips.
//!
//! Doses are those that were *drawn*, never those that were delivered in the chip: a slow chip has fewer
//! calls and less delay, and would make its own dose look harmless. The machine's pace is taken out by the
//! [`baseline`], whose reach is the one with the smallest errors. Chips far off weigh less (Huber 1964), and
//! errors hold where chips vary by different amounts (MacKinnon and White 1985, HC3).
//!
//! Such errors are themselves estimated from the few chips in which a function has a dose. They have as many
//! degrees of freedom (Satterthwaite 1946; Bell and McCaffrey 2002), and are not taken to be smaller than
//! where all chips vary alike: else experiments stop when an error is too small by chance. Where doses of
//! several chips show in one, neighbours are alike, and errors take that in.

use nalgebra::{Cholesky, DMatrix, DVector};

use super::baseline;
use crate::outliers;

/// Residuals of more than so many deviations weigh less. 2.5 keeps 98 % of the efficiency under a normal
/// distribution.
const HUBER: f64 = 2.5;
/// Rounds of reweighting.
const ROUNDS: usize = 4;
/// And with more columns than so many.
const ROUNDS_OF_MANY: usize = 1;
const MANY: usize = 100;
/// The fewest degrees of freedom that are believed.
const MIN_FREEDOM: f64 = 5.0;
/// The greatest part of a chip's residual that the fit may have taken up.
const MAX_LEVERAGE: f64 = 0.9;
/// Keeps a matrix of columns that are hardly there invertible, as a share of its largest diagonal element.
const RIDGE: f64 = 1e-10;

/// How far a [`baseline`] may reach, in chips on each side.
const REACHES: [usize; 4] = [2, 6, 20, 80];
/// A chip without units counts for this.
const MIN_WEIGHT: f64 = 1e-3;
/// It reaches so many times as far as doses do.
const REACH_OF_LAGS: usize = 3;

/// What chips far off count for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarOff {
    /// Less: what disturbed the machine for a moment tells nothing of doses.
    Less,
    /// As much as others. What a quantile moves by is in the few chips with units beyond it.
    AsOthers,
}

/// How chips are fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitting<'a> {
    /// What chips far off count for.
    pub far_off: FarOff,
    /// How many chips before one its doses are the mean of: then residuals of chips so near each other are
    /// alike.
    pub lags: usize,
    /// The units of each chip, by which chips count; none: all count alike.
    pub units: &'a [f64],
}

impl Fitting<'_> {
    /// Of times per unit, and chips that doses of others hardly show in.
    pub const USUAL: Self = Self { far_off: FarOff::Less, lags: 0, units: &[] };

    /// What each of so many chips counts for, 1 on average.
    fn weights(self, chips: usize) -> Vec<f64> {
        let mean = self.units.iter().sum::<f64>() / self.units.len().max(1) as f64;
        if self.units.len() != chips || mean <= 0.0 {
            return vec![1.0; chips];
        }
        // The baseline needs some weight around each chip.
        self.units.iter().map(|units| (units / mean).max(MIN_WEIGHT)).collect()
    }

    /// The least reach of a baseline: within a shorter one, what shows later is not told from pace.
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

/// Fits with the reach of the baseline that has the smallest errors. `times` has a row for each chip, as
/// `doses` has, with a column for each function. `None` where there are too few chips.
pub fn fit(times: &[f64], doses: &DMatrix<f64>, fitting: Fitting<'_>) -> Option<Fit> {
    best_fit(times, doses, fitting).map(|(_, fit)| fit)
}

/// The same, with the reach.
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

/// The same, with the weights of the chips.
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
        // A round takes time by the square of the columns. Chips that are far off are so for all doses
        // together, too.
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
        // Not `tr_mul`, which goes column by column.
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

    /// Chips that vary by a tenth; each function has its dose in one of so many.
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
