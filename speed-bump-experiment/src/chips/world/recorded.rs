//! The noise of real services, as a sweep recorded it without delays (`sweep --record`), and what simulated
//! functions would add to it.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::Simulation;

/// Chips of a service without delays.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Seconds that a chip takes.
    pub chip: f64,
    /// Times per unit of the chips, one after the other, as shares of their mean.
    pub times: Vec<f64>,
}

impl Recording {
    /// Reads a recording: the time that a chip takes, and then the times per unit of all chips, all in us.
    /// Lines that begin with `#` say what was recorded. `None` if there are no chips, or a number is not
    /// valid.
    pub fn parse(text: &str) -> Option<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let numbers: Option<Vec<f64>> =
            lines.flat_map(str::split_whitespace).map(|number| number.parse().ok()).collect();
        let (chip, times) = numbers.as_deref()?.split_first()?;
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let is_good = *chip > 0.0 && mean.is_finite() && times.iter().all(|time| *time > 0.0);
        is_good.then(|| Self { chip: chip / 1e6, times: times.iter().map(|time| time / mean).collect() })
    }
}

/// A recorded service under way.
#[derive(Debug)]
pub struct Recorded {
    recording: Recording,
    /// The share of its dose that shows, by function.
    sensitivities: Vec<f64>,
    /// The chip that comes next.
    next: usize,
    now: f64,
}

impl Recorded {
    /// A service that begins somewhere in its recording.
    pub fn new(recording: Recording, sensitivities: Vec<f64>, seed: u64) -> Self {
        let next = Pcg64Mcg::seed_from_u64(seed).random_range(0..recording.times.len().max(1));
        Self { recording, sensitivities, next, now: 0.0 }
    }
}

impl Simulation for Recorded {
    fn now(&self) -> f64 {
        self.now
    }

    fn rest(&mut self, seconds: f64) {
        self.now += seconds;
        self.next += (seconds / self.recording.chip) as usize;
    }

    fn adds(&self, doses: &[f64]) -> f64 {
        doses.iter().zip(&self.sensitivities).map(|(dose, sensitivity)| dose * sensitivity).sum()
    }

    fn chip(&mut self, doses: &[f64], seconds: f64, _left_out: f64) -> Option<f64> {
        self.now += seconds;
        // At its end the recording runs backwards, so that the pace does not jump.
        let count = self.recording.times.len();
        let at = self.next % (2 * count).max(1);
        self.next += 1;
        let time = *self.recording.times.get(at.min((2 * count - 1).saturating_sub(at)))?;
        Some(time + self.adds(doses))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_recording_goes_there_and_back() {
        let recording = Recording::parse("# of a service\n50000\n900 1000\n1100\n").unwrap();
        assert_eq!(recording, Recording { chip: 0.05, times: vec![0.9, 1.0, 1.1] });
        let mut recorded = Recorded::new(recording, vec![1.0, 0.0], 1);
        recorded.next = 0;
        let mut chip = |doses: &[f64]| (recorded.chip(doses, 0.05, 0.0).unwrap() * 100.0).round();
        let times: Vec<f64> = (0..8).map(|_| chip(&[0.0, 0.2])).collect();
        assert_eq!(times, [90.0, 100.0, 110.0, 110.0, 100.0, 90.0, 90.0, 100.0]);
        assert_eq!(chip(&[0.2, 0.0]), 130.0);
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for text in ["", "50000", "50000 900 x", "0 900", "50000 900 -1", "50000 900 NaN"] {
            assert_eq!(Recording::parse(text), None, "{text}");
        }
    }
}
