//! Carry-over: a dose also shows in units that end after its chip. One share for all functions is estimated;
//! doses then count to their own chip but for that share, which counts to the next.
//!
//! Where units last for several chips, it depends on when in a unit a function is called in which of them its
//! delay shows. But it shows in one of them. The mean dose of all chips in which a unit may have been under
//! way tells the same of every function: as each chip has a coin of its own, all that a dose does comes with
//! it, once, whichever chip that is in.

use nalgebra::DMatrix;

use super::regression::{Fitting, fit};

/// The greatest share that is believed.
const MAX: f64 = 0.9;
/// A share counts from so many standard errors on.
const ERRORS: f64 = 2.0;

/// The doses of the chip before, for each chip; its own where none came right before.
fn lagged(doses: &DMatrix<f64>, follows: &[bool]) -> DMatrix<f64> {
    let before = |row: usize| if follows[row] { row.saturating_sub(1) } else { row };
    DMatrix::from_fn(doses.nrows(), doses.ncols(), |row, column| doses[(before(row), column)])
}

/// The share of a dose that shows in the next chip; 0 where none is seen. `follows` has for each chip whether
/// it came right after the one before. Doses count by the `sensitivities` of their functions: else the one
/// that shows is not seen among many that do not.
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
    if later > ERRORS * fit.errors[1] && now + later > 0.0 { (later / (now + later)).min(MAX) } else { 0.0 }
}

/// Doses as they show, where this share of each shows in the next chip.
pub fn shifted(doses: &DMatrix<f64>, follows: &[bool], share: f64) -> DMatrix<f64> {
    if share == 0.0 { doses.clone() } else { doses * (1.0 - share) + lagged(doses, follows) * share }
}

/// The mean doses of each chip and of so many before it. Where one did not come right after the one before,
/// all before it are taken to have had its doses.
pub fn windowed(doses: &DMatrix<f64>, follows: &[bool], lags: usize) -> DMatrix<f64> {
    let mut sum = doses.clone();
    let mut before = doses.clone();
    for _ in 0..lags {
        before = lagged(&before, follows);
        sum += &before;
    }
    sum / (lags as f64 + 1.0)
}
