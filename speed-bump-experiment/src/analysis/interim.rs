//! Looking at verdicts before the end without being fooled by it.
//!
//! Whoever looks after every block and stops at the first that convinces is wrong in 80 % of cases where
//! there is nothing. So there are four looks, each with its part of the error that is allowed in all, spent
//! as Lan and DeMets have it for bounds of O'Brien and Fleming: nearly nothing early, nearly all at the end.
//! The parts add up to it, whatever looks have in common, and so may the tests of one look (Holm).

use statrs::distribution::{ContinuousCDF as _, Normal};

/// How often verdicts are looked at.
pub const LOOKS: u32 = 4;
/// The error that is allowed in all: a function said to matter that does not, and the other way round.
pub const ERROR: f64 = 0.05;

/// The part of [`ERROR`] that each look has.
pub fn levels() -> [f64; LOOKS as usize] {
    let normal = Normal::standard();
    let quantile = normal.inverse_cdf(1.0 - ERROR / 2.0);
    let mut spent = 0.0;
    std::array::from_fn(|look| {
        let share = (look as f64 + 1.0) / f64::from(LOOKS);
        let by_now = 2.0 * normal.sf(quantile / share.sqrt());
        let level = by_now - spent;
        spent = by_now;
        level
    })
}

/// The first block that a look does not see, of so many that are planned. The last look sees all.
pub fn until(look: u32, planned: u32) -> u32 {
    let until = (u64::from(planned) * (u64::from(look) + 1)).div_ceil(LOOKS.into());
    u32::try_from(until).unwrap_or(u32::MAX)
}

/// How many looks there were when so many blocks were done.
pub fn done(blocks: u32, planned: u32) -> u32 {
    (0..LOOKS).take_while(|look| until(*look, planned) <= blocks).count().try_into().unwrap_or(LOOKS)
}

/// Which of several tests are significant at a level in all, by Holm's method.
pub fn holm(chances: &[f64], level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut significant = vec![false; chances.len()];
    for (rank, test) in order.into_iter().enumerate() {
        if chances[test] > level / (chances.len() - rank) as f64 {
            break;
        }
        significant[test] = true;
    }
    significant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_spent_late_and_not_more_than_allowed() {
        let levels = levels();
        assert!((levels.iter().sum::<f64>() - ERROR).abs() < 1e-6, "{levels:?}");
        assert!(levels.is_sorted() && levels[0] < 0.0002 && levels[3] > 0.025, "{levels:?}");
    }

    #[test]
    fn looks_come_after_each_quarter() {
        assert_eq!([0, 1, 2, 3].map(|look| until(look, 40)), [10, 20, 30, 40]);
        assert_eq!([0, 1, 2, 3].map(|look| until(look, 10)), [3, 5, 8, 10]);
        assert_eq!([0, 9, 10, 39, 40, 41].map(|blocks| done(blocks, 40)), [0, 0, 1, 3, 4, 4]);
    }

    #[test]
    fn holm_stops_at_the_first_that_is_not() {
        assert_eq!(holm(&[0.03, 0.001, 0.04, 0.02], 0.05), [false, true, false, false]);
        assert_eq!(holm(&[0.012, 0.001, 0.2, 0.016], 0.05), [true, true, false, true]);
        assert_eq!(holm(&[], 0.05), [false; 0]);
    }
}
