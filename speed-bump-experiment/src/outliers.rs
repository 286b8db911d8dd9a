//! Medians and deviations, which a few outliers do not spoil.

/// The median of some values; 0 without any.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    (at(count.saturating_sub(1) / 2) + at(count / 2)) / 2.0
}

/// The standard deviation of normal values, from their distances to their median.
pub(crate) fn deviation(far: &mut [f64]) -> f64 {
    /// Half of the values of a normal distribution are within 1 / 1.4826 deviations.
    const OF_MEDIAN: f64 = 1.4826;
    OF_MEDIAN * median(far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_far_off_does_not_move_the_middle() {
        let mut values = [1.0, 3.0, 2.0, 1_000.0, 2.0];
        assert_eq!(median(&mut values), 2.0);
        let mut far = values.map(|value| (value - 2.0_f64).abs());
        assert!((deviation(&mut far) - 1.4826).abs() < 1e-9);
        assert_eq!((median(&mut []), median(&mut [3.0, 1.0])), (0.0, 2.0));
    }
}
