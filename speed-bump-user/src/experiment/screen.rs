//! Which functions are worth a look of their own, from slices that delayed random halves of all.
//!
//! Few matter, so each slice says something of all functions at once. The function that explains most of what
//! slices differ in is taken first, then the one that explains most of what it leaves, and so on. Verdicts do
//! not come from here: what is chosen by these slices is looked at in fresh ones.

use super::record::{By, PhaseKind, Slice, Treatment};

/// A function is taken for what it explains from this many standard errors on. Of 1,000 that do nothing one
/// comes so far in half of the screens; it costs a place among those that are looked at one by one.
const TAKEN: f64 = 3.2;
/// Where the sum of all delays explains this share of the differences, and shows up itself by more than
/// [`ALL_SHOW`], functions differ only in what they take.
const EXPLAINED: f64 = 0.5;
/// See there.
const ALL_SHOW: f64 = 0.6;

/// What a screen found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Screened {
    /// Functions by what they explain, the most first, with how many standard errors.
    pub found: Vec<(u32, f64)>,
    /// Whether all delays show alike, as on one saturated thread.
    pub all_alike: bool,
}

/// Looks at the slices of a screen. At most `most` functions are found.
pub fn screened<'a>(
    slices: impl Iterator<Item = &'a Slice>,
    candidates: usize,
    most: usize,
    by: By,
) -> Screened {
    let rows = rows(slices, by);
    if rows.len() < 4 {
        return Screened::default();
    }
    let all_alike = all_alike(&rows);
    let mut columns: Vec<Vec<f64>> = vec![vec![0.0; rows.len()]; candidates];
    for (index, row) in rows.iter().enumerate() {
        for (candidate, delay) in &row.doses {
            if let Some(column) = columns.get_mut(*candidate as usize) {
                column[index] = *delay;
            }
        }
    }
    let mut rest: Vec<f64> = rows.iter().map(|row| row.time).collect();
    centre(&mut rest);
    columns.iter_mut().for_each(|column| centre(column));
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

/// A slice against the slices without delays of its block.
struct Row {
    /// Time per unit that came on top.
    time: f64,
    /// Delay per unit in all.
    delay: f64,
    /// Planned delays by candidate, relative to each other: what was delivered is not looked at.
    doses: Vec<(u32, f64)>,
}

fn rows<'a>(slices: impl Iterator<Item = &'a Slice>, by: By) -> Vec<Row> {
    let slices: Vec<&Slice> = slices.filter(|slice| slice.phase == PhaseKind::Screen).collect();
    let is_control = |slice: &&&Slice| slice.treatment == Treatment::Control;
    let row = |slice: &&Slice| {
        let controls = slices.iter().filter(is_control).filter(|of| of.block == slice.block);
        let times: Vec<f64> = controls.map(|of| of.time_per_unit(by)).collect();
        let without = (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)?;
        Some(Row {
            time: slice.time_per_unit(by) - without,
            delay: slice.delay_per_unit(),
            doses: slice.doses.iter().map(|(candidate, _)| (*candidate, 1.0)).collect(),
        })
    };
    slices.iter().filter(|slice| !is_control(slice)).filter_map(row).collect()
}

/// Whether the time follows the sum of all delays, whichever they are.
fn all_alike(rows: &[Row]) -> bool {
    let squares: f64 = rows.iter().map(|row| row.delay * row.delay).sum();
    let slope = rows.iter().map(|row| row.delay * row.time).sum::<f64>() / squares.max(f64::MIN_POSITIVE);
    let all: f64 = rows.iter().map(|row| row.time * row.time).sum();
    let left: f64 = rows.iter().map(|row| (row.time - slope * row.delay).powi(2)).sum();
    slope > ALL_SHOW && left < (1.0 - EXPLAINED) * all
}

/// Takes the mean out of values.
pub(super) fn centre(values: &mut [f64]) {
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
