//! Delays with which units take *less* time: then what is counted is no measure of work. A service that is
//! slowed down and answers "busy" at once, or gives up, does more such units, and not more work.

use super::{
    contrast::Contrast,
    estimate::{chance, estimate},
    findings::CONFIDENCE,
    untried::{of_all_contrasts, together},
};
use crate::record::Measured;

/// Everything that was delayed at once shows it by chance with this probability.
const ERROR: f64 = 0.001;

/// Why no verdict stands, where it is so of these functions, or of all that was delayed at once.
pub(super) fn faster(measured: &Measured, names: &[&str]) -> Option<String> {
    let what = match names {
        [] => all_are_faster(measured).then(|| "several functions at once".to_owned())?,
        [name] => (*name).to_owned(),
        [name, more @ ..] => format!("{name} and {} more", more.len()),
    };
    Some(said(&what))
}

/// In words.
pub(crate) fn said(what: &str) -> String {
    format!(
        "units took less time with delays of {what} than without: what is counted is no measure of work. A \
         service may answer \"busy\" at once when it is slower, or its clients may ask for less: count what \
         is done only for answers that are none of those"
    )
}

fn all_are_faster(measured: &Measured) -> bool {
    is_faster(&together(measured), measured.rules.threshold)
        || is_faster(&of_all_contrasts(measured), measured.rules.threshold)
}

/// Whether units took less time, by no less than this share of the delay, and that is no chance.
pub(crate) fn is_faster(contrasts: &[Contrast], threshold: f64) -> bool {
    let is_no_chance = chance(contrasts).is_some_and(|chance| chance < ERROR);
    let found = estimate(contrasts, CONFIDENCE).filter(|_| is_no_chance);
    found.is_some_and(|found| found.high < 0.0 && found.sensitivity <= -threshold)
}
