//! What differences say, whatever their spread is: Wilcoxon's signed ranks.
//!
//! A machine that takes half as long again for a second, since its host had other things to do, puts a few
//! slices far off. A mean follows those; the middle of the means of all pairs (Hodges and Lehmann) does not,
//! and where noise is normal it is nearly as good. All that it needs is that noise is as likely to be on one
//! side as on the other, which the random order sees to.

use statrs::distribution::{ContinuousCDF as _, Normal};

use super::{contrast::Contrast, estimate::Estimate, outliers::median};

/// Differences from which on the sum of ranks is near enough to a normal distribution, also far from its
/// middle.
pub(crate) const MIN: usize = 20;

/// The share of the delay that shows, and where it is with this probability; `None` where that has no bounds.
///
/// It lies where the ranks of what is left, `time − s·delay`, are balanced: in the middle of the ratios of
/// all pairs of blocks.
pub(super) fn estimate(contrasts: &[Contrast], confidence: f64) -> Option<Estimate> {
    let contrasts = &few(contrasts)[..];
    let mut ratios = pairs(contrasts);
    let spread = spread(contrasts.len());
    let far = Normal::standard().inverse_cdf(0.5 + confidence / 2.0) * spread;
    // Pairs without any delay are on one side, whatever the share is.
    let count = ratios.len();
    let beyond = count as f64 / 2.0 - far;
    if beyond < 0.0 {
        return None;
    }
    let beyond = beyond as usize;
    let sensitivity = median(&mut ratios);
    let (low, high) = (*ratios.get(beyond)?, *ratios.get(count.checked_sub(beyond + 1)?)?);
    let is_bounded = low.is_finite() && high.is_finite();
    is_bounded.then_some(Estimate { sensitivity, low, high })
}

/// How probable it is to see as much as this, on either side, from a treatment that does nothing.
pub(super) fn chance(contrasts: &[Contrast]) -> f64 {
    let contrasts = &few(contrasts)[..];
    let sums = walsh(contrasts).map(|(time, _)| time);
    let balance: f64 = sums.map(|time| if time == 0.0 { 0.0 } else { time.signum() / 2.0 }).sum();
    2.0 * Normal::standard().sf(balance.abs() / spread(contrasts.len())).min(0.5)
}

/// The contrasts, with neighbours taken together where there are many: all pairs of 10,000 would take
/// seconds.
fn few(contrasts: &[Contrast]) -> Vec<Contrast> {
    /// So many are few.
    const FEW: usize = 500;
    let mean = |of: &[Contrast]| {
        let count = of.len() as f64;
        let sum = |value: fn(&Contrast) -> f64| of.iter().map(value).sum::<f64>() / count;
        Some(Contrast { block: of.first()?.block, time: sum(|of| of.time), delay: sum(|of| of.delay) })
    };
    contrasts.chunks(contrasts.len().div_ceil(FEW).max(1)).filter_map(mean).collect()
}

/// By pair of blocks, one and the same included, how much of the delay shows.
fn pairs(contrasts: &[Contrast]) -> Vec<f64> {
    let ratio = |(time, delay): (f64, f64)| if time == 0.0 { 0.0 } else { time / delay.max(0.0) };
    walsh(contrasts).map(ratio).collect()
}

/// The sums of times and delays of all pairs.
fn walsh(contrasts: &[Contrast]) -> impl Iterator<Item = (f64, f64)> {
    let from = |(index, one): (usize, &Contrast)| {
        let one = *one;
        contrasts[index..].iter().map(move |other| (one.time + other.time, one.delay + other.delay))
    };
    contrasts.iter().enumerate().flat_map(from)
}

/// The standard deviation of the sum of the positive ranks of so many differences.
fn spread(differences: usize) -> f64 {
    let n = differences as f64;
    (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn blocks(times: impl Iterator<Item = f64>, delay: f64) -> Vec<Contrast> {
        (0..).zip(times).map(|(block, time)| Contrast { block, time, delay }).collect()
    }

    #[test]
    fn the_middle_of_24_differences_is_that_of_tables() {
        // The table has 81 for 24 differences: as many of the 300 pairs are below the interval.
        let of = blocks((1..=24).map(f64::from), 1.0);
        let found = estimate(&of, 0.95).unwrap();
        assert_eq!(found.sensitivity, 12.5);
        assert_eq!((found.low, found.high), (9.5, 15.5));
        assert!(chance(&of) < 1e-4, "{}", chance(&of));
        let of =
            blocks((1..=24).map(|number| if number % 2 == 0 { 1.0 } else { -1.0 } * f64::from(number)), 1.0);
        assert!(chance(&of) > 0.5, "{}", chance(&of));
    }

    #[test]
    fn a_few_far_off_change_little() {
        let usual = |number: i32| 10.0 + f64::from(number % 5);
        let all = estimate(&blocks((0..40).map(usual), 10.0), 0.95).unwrap();
        let off = |number: i32| if number % 10 == 0 { 500.0 } else { usual(number) };
        let some = estimate(&blocks((0..40).map(off), 10.0), 0.95).unwrap();
        assert!((all.sensitivity - some.sensitivity).abs() < 0.1, "{all:?} {some:?}");
        assert!(some.high - some.low < 0.3, "{some:?}");
    }

    #[test]
    fn many_are_as_good_as_few() {
        let of = blocks((0..10_000).map(|number| 10.0 + f64::from(number * 7 % 5)), 10.0);
        let found = estimate(&of, 0.95).unwrap();
        assert!((found.sensitivity - 1.2).abs() < 0.01 && found.high - found.low < 0.02, "{found:?}");
        assert_eq!(few(&of).len(), 500);
    }

    #[test]
    fn without_delays_there_are_no_bounds() {
        assert_eq!(estimate(&blocks((0..40).map(f64::from), 0.0), 0.95), None);
        assert_eq!(chance(&blocks((0..40).map(|_| 0.0), 0.0)), 1.0);
        assert!(chance(&blocks((0..40).map(|_| 1.0), 0.0)) < 1e-6);
    }
}
