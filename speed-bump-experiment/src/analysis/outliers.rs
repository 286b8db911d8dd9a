//! Middles and deviations that a few values far off do not spoil.

/// Values without what is far from the others: it is put where far begins.
pub(crate) fn clamp_outliers(values: &mut [f64], far: f64) {
    let middle = median(&mut values.to_vec());
    let mut left: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let most = far * deviation(&mut left);
    if most > 0.0 {
        values.iter_mut().for_each(|value| *value = value.clamp(middle - most, middle + most));
    }
}

/// The middle of some values; 0 without any.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    (at(count.saturating_sub(1) / 2) + at(count / 2)) / 2.0
}

/// The standard deviation of normal values that are so far from their middle.
pub(crate) fn deviation(far: &mut [f64]) -> f64 {
    /// Half of the values of a normal distribution are within 1 / 1.4826 deviations.
    const OF_MEDIAN: f64 = 1.4826;
    OF_MEDIAN * median(far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_far_off_are_put_where_far_begins() {
        let mut values: Vec<f64> = (0..9).map(f64::from).chain([1_000.0]).collect();
        clamp_outliers(&mut values, 4.0);
        assert!(
            values[9] < 25.0 && values[..9] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            "{values:?}"
        );
        assert_eq!((median(&mut []), median(&mut [3.0, 1.0])), (0.0, 2.0));
    }
}
