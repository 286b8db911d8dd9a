//! Intervals that hold at all times together: confidence sequences of a normal mixture (Robbins 1970; Howard,
//! Ramdas, McAuliffe and Sekhon, Annals of Statistics 49, 2021, section 3.3).

/// The information at which the mixture is narrowest: that of a standard error of 0.3.
const TUNED_FOR: f64 = 1.0 / (0.3 * 0.3);

/// By how many standard errors an estimate may be off on one side. The probability that it is ever off by
/// more is at most `error`. `standard_error` is the present one, and `freedom` its degrees of freedom.
pub fn factor(standard_error: f64, error: f64, freedom: f64) -> f64 {
    let information = 1.0 / (standard_error * standard_error);
    let ratio = information / TUNED_FOR;
    let normal = ((1.0 + 1.0 / ratio) * (ratio.ln_1p() + 2.0 * (1.0 / error).ln())).sqrt();
    // Cornish and Fisher: Student's t instead of the normal distribution.
    normal * (1.0 + (normal * normal + 1.0) / (4.0 * freedom))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::chips::world::normal;

    #[test]
    fn more_certainty_and_fewer_degrees_of_freedom_take_more_standard_errors() {
        let many = f64::INFINITY;
        assert!(factor(0.1, 0.01, many) > factor(0.1, 0.1, many));
        assert!(factor(0.1, 0.05, 10.0) > factor(0.1, 0.05, 100.0));
        // At any time: more than 1.64, which holds at one time alone.
        assert!(factor(0.1, 0.05, many) > 1.64);
    }

    #[test]
    fn a_walk_without_drift_is_outside_in_no_more_runs_than_said() {
        const RUNS: usize = 400;
        const ERROR: f64 = 0.1;
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let outside = |random: &mut Pcg64Mcg| {
            let mut sum = 0.0;
            (1..2_000).any(|count| {
                sum += normal(random);
                let (mean, error) = (sum / f64::from(count), 1.0 / f64::from(count).sqrt());
                count > 3 && mean > factor(error, ERROR, f64::INFINITY) * error
            })
        };
        let wrong = (0..RUNS).filter(|_| outside(&mut random)).count();
        assert!(wrong as f64 <= (ERROR + 0.03) * RUNS as f64, "{wrong} of {RUNS}");
    }
}
