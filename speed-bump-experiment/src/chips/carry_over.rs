//! Carry-over: a dose also shows in units that end after its chip. One share is estimated for all functions:
//! that share of a dose counts to the next chip, and the rest to its own.
//!
//! If a unit lasts for several chips, a delay shows in one of them. Which one depends on when in the unit the
//! function is called. So a unit counts with the mean dose of all chips in which it may have been under way.
//! That treats all functions alike: since each chip has its own coins, the effect of a dose counts once, in
//! whichever chip it shows.

use nalgebra::DMatrix;

use super::regression::{Fitting, fit};

/// The largest share that is used.
const MAX_SHARE: f64 = 0.9;
/// A share counts if it is more than this many standard errors.
const MIN_ERRORS: f64 = 2.0;

/// For each chip, the doses of the chip before; its own doses if no chip came right before it.
fn lagged(doses: &DMatrix<f64>, follows: &[bool]) -> DMatrix<f64> {
    let before = |row: usize| if follows[row] { row.saturating_sub(1) } else { row };
    DMatrix::from_fn(doses.nrows(), doses.ncols(), |row, column| doses[(before(row), column)])
}

/// The share of a dose that shows in the next chip; 0 if none is found. `follows` has for each chip whether
/// it came right after the one before. Doses are weighted by the `sensitivities` of their functions:
/// otherwise one function that shows would be lost among many that do not.
pub fn share(
    times: &[f64],
    doses: &DMatrix<f64>,
    sensitivities: &[f64],
    follows: &[bool],
    fitting: Fitting<'_>,
) -> f64 {
    let shown = |row: usize| doses.row(row).iter().zip(sensitivities).map(|(dose, of)| dose * of).sum();
    let total = DMatrix::from_fn(doses.nrows(), 1, |row, _| shown(row));
    let before = lagged(&total, follows);
    let both = DMatrix::from_fn(doses.nrows(), 2, |row, column| [&total, &before][column][row]);
    let Some(fit) = fit(times, &both, fitting) else { return 0.0 };
    let (now, later) = (fit.estimates[0], fit.estimates[1]);
    if later > MIN_ERRORS * fit.errors[1] && now + later > 0.0 {
        (later / (now + later)).min(MAX_SHARE)
    } else {
        0.0
    }
}

/// The doses that show in each chip, if this share of each dose shows in the next chip.
pub fn shifted(doses: &DMatrix<f64>, follows: &[bool], share: f64) -> DMatrix<f64> {
    if share == 0.0 { doses.clone() } else { doses * (1.0 - share) + lagged(doses, follows) * share }
}

/// The mean doses of each chip and the `lags` chips before it. If a chip did not come right after the one
/// before, all chips before it count with its doses.
pub fn windowed(doses: &DMatrix<f64>, follows: &[bool], lags: usize) -> DMatrix<f64> {
    let mut sum = doses.clone();
    let mut before = doses.clone();
    for _ in 0..lags {
        before = lagged(&before, follows);
        sum += &before;
    }
    sum / (lags as f64 + 1.0)
}
