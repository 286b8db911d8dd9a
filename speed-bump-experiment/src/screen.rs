//! Which functions are worth a look of their own, from slices that delayed random halves of all.
//!
//! Few matter, so each slice says something of all functions at once. The function that explains most of what
//! slices differ in is taken first, then the one that explains most of what it leaves, and so on. Verdicts do
//! not come from here: what is chosen by these slices is looked at in fresh ones.

use statrs::distribution::{ChiSquared, ContinuousCDF as _};

use super::{
    analysis::{contrast::Without, outliers::clamp_outliers},
    record::{By, PhaseKind, Slice, Treatment},
};
use crate::units::Nanos;

/// A function is taken for what it explains from this many standard errors on. Of 1,000 that do nothing some
/// come so far; each costs a place among those that are looked at one by one, behind those that explain more.
const TAKEN: f64 = 2.5;
/// Times are far from the others from so many standard deviations on.
const FAR: f64 = 4.0;
/// To choose by, from fewer on: a slice that is far off says little of what explains it.
const FAR_TO_CHOOSE: f64 = 1.5;
/// Functions differ where noise has them differ as much in one screen of so many.
const DIFFER: f64 = 0.01;
/// Where the sum of all delays explains this share of the differences, and shows up itself by more than
/// [`ALL_SHOW`], functions differ only in what they take.
const EXPLAINED: f64 = 0.5;
/// See there.
const ALL_SHOW: f64 = 0.85;

/// What a screen found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Screened {
    /// Functions by what they explain, the most first, with how many standard errors.
    pub(super) found: Vec<(u32, f64)>,
    /// Whether all delays show alike, as on one saturated thread.
    pub(super) all_alike: bool,
}

/// Looks at the slices of a screen that have delays. At most `most` functions are found.
pub(super) fn screened(rows: &[Row], candidates: usize, most: usize) -> Screened {
    if rows.len() < 4 {
        return Screened::default();
    }
    let mut columns: Vec<Vec<f64>> = vec![vec![0.0; rows.len()]; candidates];
    for (index, row) in rows.iter().enumerate() {
        for (candidate, _) in &row.doses {
            // Relative to each other.
            if let Some(column) = columns.get_mut(*candidate as usize) {
                column[index] = 1.0;
            }
        }
    }
    let mut rest: Vec<f64> = rows.iter().map(|row| row.time).collect();
    centre(&mut rest);
    columns.iter_mut().for_each(|column| centre(column));
    let all_alike = all_alike(rows) && !some_differ(&columns, &rest);
    clamp_outliers(&mut rest, FAR_TO_CHOOSE);
    centre(&mut rest);
    let mut found = Vec::new();
    while found.len() < most {
        let freedom = rows.len() as f64 - found.len() as f64 - 2.0;
        let left = dot(&rest, &rest);
        if freedom < 1.0 || left <= 0.0 {
            break;
        }
        let explains = |column: &Vec<f64>| {
            let norm = dot(column, column);
            // A column that those before have used up.
            if norm <= 1e-9 { 0.0 } else { dot(column, &rest) / norm.sqrt() }
        };
        let best = columns.iter().enumerate().map(|(index, column)| (index, explains(column)));
        let Some((index, most)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        let errors = most / ((left - most * most).max(0.0) / freedom).sqrt();
        if most <= 0.0 || errors < TAKEN {
            break;
        }
        let column = unit(&columns[index]);
        found.push((u32::try_from(index).unwrap_or(u32::MAX), errors));
        take_out(&mut rest, &column);
        columns.iter_mut().for_each(|other| take_out(other, &column));
    }
    Screened { found, all_alike }
}

/// A slice against the slices without delays next to it.
pub(super) struct Row {
    /// Time per unit that came on top.
    pub(super) time: f64,
    /// Delay per unit in all.
    delay: f64,
    /// Planned delays of a call, by candidate: what was delivered is not looked at.
    pub(super) doses: Vec<(u32, Nanos)>,
}

/// The slices of a screen that have delays, in their order. Times far from all others are put nearer.
pub(super) fn rows<'a>(slices: impl Iterator<Item = &'a Slice>, by: By) -> Vec<Row> {
    let slices: Vec<&Slice> = slices.filter(|slice| slice.phase == PhaseKind::Screen).collect();
    let without = Without::of(slices.iter().copied(), |slice| Some(slice.time_per_unit(by)));
    let treated = slices.iter().filter(|slice| slice.treatment != Treatment::Control);
    let row = |slice: &&Slice| {
        let time = slice.time_per_unit(by) - without.at(slice)?;
        Some(Row { time, delay: slice.delay_per_unit(), doses: slice.doses.clone() })
    };
    let mut rows: Vec<Row> = treated.filter_map(row).collect();
    let mut times: Vec<f64> = rows.iter().map(|row| row.time).collect();
    clamp_outliers(&mut times, FAR);
    rows.iter_mut().zip(times).for_each(|(row, time)| row.time = time);
    rows
}

/// Whether the time follows the sum of all delays, whichever they are.
fn all_alike(rows: &[Row]) -> bool {
    let squares: f64 = rows.iter().map(|row| row.delay * row.delay).sum();
    let slope = rows.iter().map(|row| row.delay * row.time).sum::<f64>() / squares.max(f64::MIN_POSITIVE);
    let all: f64 = rows.iter().map(|row| row.time * row.time).sum();
    let left: f64 = rows.iter().map(|row| (row.time - slope * row.delay).powi(2)).sum();
    slope > ALL_SHOW && left < (1.0 - EXPLAINED) * all
}

/// Whether functions show more than others, or less, by more than noise makes of it.
fn some_differ(columns: &[Vec<f64>], times: &[f64]) -> bool {
    let freedom = times.len() as f64 - 2.0;
    let squares = |column: &Vec<f64>| {
        let explains = dot(column, times).powi(2) / dot(column, column);
        let left = (dot(times, times) - explains).max(0.0) / freedom;
        (explains / left).max(0.0)
    };
    let delayed = || columns.iter().filter(|column| dot(column, column) > 0.0);
    let all: f64 = delayed().map(squares).sum();
    ChiSquared::new(delayed().count() as f64).is_ok_and(|chance| chance.sf(all) < DIFFER)
}

/// Takes the mean out of values.
fn centre(values: &mut [f64]) {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter_mut().for_each(|value| *value -= mean);
}

/// The sum of products.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A column of length one.
pub(super) fn unit(column: &[f64]) -> Vec<f64> {
    let norm = dot(column, column).sqrt();
    column.iter().map(|value| value / norm).collect()
}

/// Takes out of values what goes along a direction, a column of length one.
pub(super) fn take_out(values: &mut [f64], direction: &[f64]) {
    let along = dot(values, direction);
    values.iter_mut().zip(direction).for_each(|(value, direction)| *value -= along * direction);
}
