//! The local baseline: what a chip has in common with the chips around it is the pace of the machine, and not
//! the effect of a function.

/// Subtracts from each value the weighted mean of the values at most `reach` places away, its own included.
/// `weights` are positive, one for each value.
pub fn subtract(values: &mut [f64], weights: &[f64], reach: usize) {
    let count = values.len();
    let mut sums = Vec::with_capacity(count + 1);
    let mut weight_sums = Vec::with_capacity(count + 1);
    let (mut sum, mut weight_sum) = (0.0, 0.0);
    sums.push(sum);
    weight_sums.push(weight_sum);
    for (value, weight) in values.iter().zip(weights) {
        sum += value * weight;
        weight_sum += weight;
        sums.push(sum);
        weight_sums.push(weight_sum);
    }
    for (at, value) in values.iter_mut().enumerate() {
        let (first, end) = (at.saturating_sub(reach), (at + reach + 1).min(count));
        let weight = weight_sums[end] - weight_sums[first];
        if weight > 0.0 {
            *value -= (sums[end] - sums[first]) / weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_slowly_goes_and_what_changes_at_once_stays() {
        let weights = [1.0; 9];
        let mut line: Vec<f64> = (0..9).map(f64::from).collect();
        subtract(&mut line, &weights, 1);
        // On a line, a value is the mean of its neighbours, except at the ends.
        assert_eq!(line[1..8], [0.0; 7]);
        let mut peak = [0.0, 0.0, 3.0, 0.0, 0.0];
        subtract(&mut peak, &weights[..5], 1);
        assert_eq!(peak, [0.0, -1.0, 2.0, -1.0, 0.0]);
    }

    #[test]
    fn what_weighs_nothing_counts_for_nothing() {
        let mut values = [1.0, 100.0, 1.0];
        subtract(&mut values, &[1.0, 0.0, 1.0], 2);
        assert_eq!(values, [0.0, 99.0, 0.0]);
        let mut none: [f64; 0] = [];
        subtract(&mut none, &[], 3);
    }
}
