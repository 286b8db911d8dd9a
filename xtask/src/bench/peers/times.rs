//! The times that the measured program reports for its calls.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The times of a slice: of the slowed function's calls, and of another function's calls right after them, or
/// after a sleep as well.
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) called: Sorted,
    pub(super) other: Sorted,
}

impl Times {
    /// Reads the answer to `measure`.
    pub(super) fn read(answer: &[Value]) -> Result<Self> {
        let event =
            answer.iter().find(|event| event["event"] == "times").context("the program said no times")?;
        let of = |name: &str| {
            let times = event[name].as_array().map(|all| all.iter().filter_map(Value::as_f64).collect());
            let times: Vec<f64> = times.unwrap_or_default();
            ensure!(!times.is_empty(), "the program did not measure `{name}`");
            Ok(Sorted::new(times))
        };
        Ok(Self { called: of("called")?, other: of("other")? })
    }
}

/// Times in ns, sorted.
#[derive(Clone, Debug)]
pub(super) struct Sorted(Vec<f64>);

impl Sorted {
    fn new(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// The times of several slices.
    pub(super) fn all<'a>(several: impl Iterator<Item = &'a Self>) -> Self {
        Self::new(several.flat_map(|times| times.0.iter().copied()).collect())
    }

    /// The mean of the middle half. As steady as the median, and finer than the clock, whose steps are 10 ns
    /// and more on some machines.
    pub(super) fn middle(&self) -> f64 {
        let quarter = self.0.len() / 4;
        let half = self.0.get(quarter..self.0.len() - quarter).unwrap_or_default();
        half.iter().sum::<f64>() / half.len() as f64
    }

    /// The quantile of the times at this share.
    pub(super) fn at(&self, share: f64) -> f64 {
        let index = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(index.clamp(1, self.0.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn the_middle_is_finer_than_the_clock_and_ignores_what_is_far_out() {
        let steps = Sorted::new(vec![20.0, 20.0, 30.0, 30.0, 30.0, 20.0, 20.0, 1e9]);
        assert_eq!(steps.middle(), 25.0);
        assert_eq!(Sorted::new(vec![7.0]).middle(), 7.0);
        let both = [Sorted::new(vec![9.0, 1.0]), Sorted::new(vec![3.0, 2.0])];
        assert_eq!(Sorted::all(both.iter()).middle(), 2.5);
    }

    #[test]
    fn of_a_hundred_one_is_longer() {
        let times = Sorted::new((1..=100).rev().map(f64::from).collect());
        assert_eq!(times.at(0.99), 99.0);
        assert_eq!(times.at(1.0), 100.0);
        assert_eq!(Sorted::new(vec![7.0]).at(0.99), 7.0);
    }

    #[test]
    fn an_answer_is_read_whole() {
        let answer = [json!({"event":"other"}), json!({"event":"times","called":[2, 1],"other":[3]})];
        let times = Times::read(&answer).unwrap();
        assert_eq!(times.called.0, [1.0, 2.0]);
        assert_eq!(times.other.0, [3.0]);
        assert!(Times::read(&answer[..1]).is_err());
        assert!(Times::read(&[json!({"event":"times","called":[],"other":[3]})]).is_err());
    }
}
