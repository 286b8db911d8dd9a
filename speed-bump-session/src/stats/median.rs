//! Computes results from a histogram of delays: the median, and which part of the excess comes from
//! interruptions.

use speed_bump_abi::Histogram;

use crate::units::Nanos;

/// The number of delays in the histogram. The counts may come from the target process.
fn recorded(histogram: &Histogram) -> u64 {
    let buckets = histogram.words.iter().skip(Histogram::SHORT);
    buckets.fold(0, |sum, count| sum.saturating_add(*count))
}

/// The average excess of the delays in a bucket, relative to their request.
///
/// The first bucket counts as exact: if delays end in time, most of them lie near the bucket's beginning. The
/// end of the last bucket is unknown.
fn parts(bucket: usize) -> f64 {
    let (from, to) = Histogram::bounds(bucket);
    match bucket {
        0 => 0.0,
        last if last + 1 == Histogram::BUCKETS => from as f64,
        _ => (from + to) as f64 / 2.0,
    }
}

/// The median delay divided by its request. `None` if less than half of the delays are in the histogram, or
/// if the median delay ended early.
pub(super) fn median_times(histogram: &Histogram, delayed: u64) -> Option<f64> {
    let recorded = recorded(histogram);
    if recorded == 0 || recorded < delayed / 2 {
        return None;
    }
    let mut left = ((recorded - 1) / 2).checked_sub(*histogram.words.get(Histogram::SHORT)?)?;
    for (bucket, count) in histogram.words.get(Histogram::FIRST..)?.iter().enumerate() {
        if left >= *count {
            left -= count;
            continue;
        }
        let (from, to) = Histogram::bounds(bucket);
        let is_between = bucket > 0 && bucket + 1 < Histogram::BUCKETS;
        let inside = (to - from) as f64 * (left as f64 + 0.5) / *count as f64;
        let parts = if is_between { from as f64 + inside } else { parts(bucket) };
        return Some(1.0 + parts / Histogram::PARTS as f64);
    }
    None
}

/// The median of the time that calls lose to their delays.
///
/// If doses have changed, this is the median of loss divided by request, multiplied by the mean request.
pub fn median(histogram: &Histogram, delayed: u64, requested: Nanos) -> Option<Nanos> {
    let times = median_times(histogram, delayed)?;
    Some(Nanos((requested.0 as f64 / delayed.max(1) as f64 * times).round() as u64))
}

/// The number of delays that were interrupted near their end.
pub fn interrupted(histogram: &Histogram) -> u64 {
    histogram.words.get(Histogram::INTERRUPTED).copied().unwrap_or(0).min(recorded(histogram))
}

/// The part of the excess that comes from interrupted delays: 0 to 1. We assume that the interrupted delays
/// are the longest ones.
pub(super) fn interrupted_part(histogram: &Histogram) -> f64 {
    let mut left = interrupted(histogram);
    let (mut of_interrupted, mut all) = (0.0, 0.0);
    for (bucket, count) in histogram.words.iter().skip(Histogram::FIRST).enumerate().rev() {
        let here = left.min(*count);
        left -= here;
        of_interrupted += here as f64 * parts(bucket);
        all += *count as f64 * parts(bucket);
    }
    if all > 0.0 { of_interrupted / all } else { 0.0 }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The histogram of delays of these lengths, all with the same request.
    pub(in crate::stats) fn histogram_of(requested: u64, delivered: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for delivered in delivered {
            histogram.words[Histogram::position(*delivered, requested)] += 1;
            if *delivered > requested + Histogram::interrupted_above_ns(requested) {
                histogram.words[Histogram::INTERRUPTED] += 1;
            }
        }
        histogram
    }

    fn median_of(requested: u64, delivered: &[u64]) -> Option<u64> {
        let count = delivered.len() as u64;
        median(&histogram_of(requested, delivered), count, Nanos(requested * count)).map(|median| median.0)
    }

    #[test]
    fn the_median_is_the_middle_one_within_a_part_in_a_hundred() {
        for requested in [1_000_u64, 10_000, 1_000_000, 10_000_000_000] {
            for hundredths in 0..50 {
                let middle = requested + requested / 100 * hundredths;
                let median = median_of(requested, &[requested, middle, middle, middle, 40 * requested]);
                let off = median.unwrap_or_default().abs_diff(middle);
                assert!(off * 100 <= middle + middle / 20, "{requested} {middle} {median:?}");
            }
        }
    }

    #[test]
    fn a_median_far_beyond_the_request_is_near_it_still() {
        for times in [2_u64, 3, 6, 17, 32] {
            let median = median_of(1_000, &[1_000 * times; 9]).unwrap_or_default();
            assert!(median.abs_diff(1_000 * times) * 30 <= 1_000 * times, "{times} {median}");
        }
        assert!(median_of(1, &[10_000_000_000]).is_some_and(|median| median > 100_000));
    }

    #[test]
    fn exact_delays_have_an_exact_median() {
        assert_eq!(median_of(1_000_000, &[1_000_040, 1_000_100, 9_000_000]), Some(1_000_000));
        assert_eq!(median_of(1_000_000, &[1_000_000]), Some(1_000_000));
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        assert_eq!(median_of(1_000, &[]), None);
        assert_eq!(median_of(1_000, &[10, 10, 1_000]), None, "most ended early");
        let half = histogram_of(1_000, &[1_000; 10]);
        assert_eq!(median(&half, 21, Nanos(21_000)), Some(Nanos(1_000)));
        assert_eq!(median(&half, 22, Nanos(22_000)), None, "most are nowhere");
        let nonsense = Histogram { words: [u64::MAX; Histogram::WORDS] };
        assert!(median(&nonsense, u64::MAX, Nanos(u64::MAX)).is_none());
        assert!(interrupted_part(&nonsense) <= 1.0);
    }

    #[test]
    fn the_longest_delays_are_the_interrupted_ones() {
        let part = |delivered: &[u64]| interrupted_part(&histogram_of(1_000_000, delivered));
        assert!((part(&[1_000_000, 1_000_000, 9_000_000]) - 1.0).abs() < 1e-9);
        assert!(part(&[1_040_000; 9]).abs() < 1e-9);
        let half = part(&[1_040_000, 1_040_000, 1_040_000, 1_040_000, 1_160_000]);
        assert!((0.4..0.6).contains(&half), "{half}");
        assert!(part(&[]).abs() < 1e-9);
    }
}
