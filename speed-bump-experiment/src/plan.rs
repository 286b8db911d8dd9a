//! What an experiment would do, and how sure it would be.

use std::{f64::consts::PI, time::Duration};

use statrs::distribution::ContinuousCDF as _;

use super::{
    analysis::{
        estimate::{MIN_BLOCKS, student},
        ranks,
    },
    schedule::{LEVELS, MAX_SURVIVORS, Pace, SCREEN_BLOCK, Times, confirm_block_slices},
};
use crate::units::Nanos;

/// The noise of slices that it is told for.
const NOISES: [f64; 4] = [0.01, 0.02, 0.05, 0.1];

/// How an experiment would divide its time, and what it could find out in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How the time is divided.
    pub times: Times,
    /// Blocks of the screen; 0 without one.
    pub screen_blocks: u32,
    /// Slices of a block of the last phase.
    pub block: u32,
    /// Blocks of the last phase.
    pub blocks: u32,
    /// By how much a sensitivity is known, either way, by the noise of slices.
    pub half_widths: Vec<(f64, f64)>,
}

impl Plan {
    /// For so many functions that are worth a look, where units come at this pace. `basic` is the basic dose,
    /// as a share of a unit's time.
    pub fn of(
        total: Duration,
        functions: usize,
        per_function: bool,
        pace: Pace,
        slice: Option<Duration>,
        basic: f64,
    ) -> Self {
        let times = Times::of(total, if per_function { 0 } else { functions }, pace, slice);
        let is_screened = times.screen.0 > 0;
        let (looked_at, rest) = if is_screened { (functions.min(MAX_SURVIVORS), 1) } else { (functions, 0) };
        let block = confirm_block_slices(looked_at + rest);
        let blocks = (times.slices_in(times.confirm) / block.max(1)).max(MIN_BLOCKS as u32);
        let screen_blocks = times.slices_in(times.screen) / SCREEN_BLOCK as u32;
        let dose = basic * LEVELS.iter().sum::<f64>() / LEVELS.len() as f64;
        let quantile = student(blocks as usize - 1).map_or(f64::NAN, |t| t.inverse_cdf(0.975));
        // Of the difference of two slices, and what ranks lose where noise is normal.
        let efficiency = if (blocks as usize) < ranks::MIN { 1.0 } else { 3.0 / PI };
        let spread = (2.0 / efficiency).sqrt();
        let half = |noise: f64| quantile * noise * spread / (dose * f64::from(blocks).sqrt());
        let half_widths = NOISES.map(|noise| (noise, half(noise))).to_vec();
        Self { times, screen_blocks, block, blocks, half_widths }
    }

    /// In words.
    pub fn lines(&self) -> Vec<String> {
        let Times { slice, burn_in, census, titrate, screen, confirm } = self.times;
        let mut lines = vec![
            format!(
                "slices: {} and {} before each, in which a change settles",
                rounded(slice),
                rounded(burn_in)
            ),
            format!("census: {}, no delays", rounded(census)),
            format!("titrate: up to {}, everything at once", rounded(titrate)),
        ];
        if screen.0 > 0 {
            let blocks = self.screen_blocks;
            lines.push(format!("screen: {}, {blocks} blocks of {SCREEN_BLOCK} slices", rounded(screen)));
        }
        lines.push(format!("confirm: {}, {} blocks of {} slices", rounded(confirm), self.blocks, self.block));
        lines.extend(self.half_widths.iter().map(|(noise, half)| {
            format!(
                "where slices differ by {:.0} %, the sensitivity of a function is known to ± {half:.2}",
                noise * 100.0
            )
        }));
        lines
    }
}

/// To tenths of a second, or milliseconds.
fn rounded(time: Nanos) -> Nanos {
    let unit = if time.0 < 1_000_000_000 { 1_000_000 } else { 100_000_000 };
    Nanos(time.0 / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { unit: 1e6, under_way: None };

    #[test]
    fn shorter_slices_make_it_surer() {
        let plan = |under_way| {
            let pace = Pace { under_way, ..PACE };
            Plan::of(Duration::from_secs(120), 3, false, pace, None, 0.09)
        };
        let (known, unknown) = (plan(Some(1.0)), plan(None));
        assert_eq!((known.times.slice, unknown.times.slice), (Nanos(40_000_000), Nanos(150_000_000)));
        assert!(known.half_widths[0].1 < unknown.half_widths[0].1, "{known:?}");
    }

    #[test]
    fn more_time_and_fewer_functions_make_it_surer() {
        let half = |seconds, functions| {
            let plan = Plan::of(Duration::from_secs(seconds), functions, false, PACE, None, 0.09);
            plan.half_widths[1].1
        };
        assert!(half(120, 3) < half(120, 8) && half(240, 3) < half(120, 3));
        assert!((0.02..0.2).contains(&half(120, 3)), "{}", half(120, 3));
    }

    #[test]
    fn it_is_told_in_words() {
        let lines = Plan::of(Duration::from_secs(120), 20, false, PACE, None, 0.09).lines();
        assert_eq!(lines[1], "census: 7.2s, no delays");
        assert!(lines.iter().any(|line| line.starts_with("screen: 42s, ")), "{lines:?}");
        let few = Plan::of(Duration::from_secs(120), 2, false, PACE, None, 0.09).lines();
        assert!(!few.iter().any(|line| line.starts_with("screen")), "{few:?}");
    }
}
