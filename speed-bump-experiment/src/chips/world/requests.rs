//! An open loop of requests of two kinds that do not wait for each other: for quantiles of latency.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Pace, Simulation, exponential, normal, pace::Paces};
use crate::chips::influence::{Counts, Influence, counts};

/// The middle latency of most requests, in seconds.
const USUAL: f64 = 0.008;
/// Latencies are spread log-normally.
const SPREAD: f64 = 0.25;
/// The share of requests that take longer, and by how many seconds.
const RARE: f64 = 0.02;
const LONGER: f64 = 0.012;

/// A service of this kind under way. Each request calls the first function as it begins. The rare requests
/// call the second one before they end. No request waits for the others.
#[derive(Debug)]
pub struct Requests {
    random: Pcg64Mcg,
    paces: Paces,
    /// Requests a second.
    rate: f64,
    /// The time that doses are shares of, in seconds.
    unit: f64,
    now: f64,
    next_arrival: f64,
    under_way: Vec<UnderWay>,
    /// Latencies of the last chip, in seconds.
    done: Vec<f64>,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    arrived: f64,
    /// When it calls the second function, or else ends.
    next: f64,
    /// Whether it is a rare request that still has to call the second function.
    is_rare: bool,
}

impl Requests {
    /// A service with `rate` requests a second, for `seconds` at most. Doses are shares of `unit` seconds.
    pub fn new(rate: f64, unit: f64, pace: Pace, seconds: f64, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let paces = Paces::new(pace, seconds, &mut random);
        let next_arrival = exponential(1.0 / rate, &mut random);
        Self { random, paces, rate, unit, now: 0.0, next_arrival, under_way: Vec::new(), done: Vec::new() }
    }

    fn run_until(&mut self, end: f64, doses: &[f64]) {
        let delay = |at: usize| doses.get(at).copied().unwrap_or_default() * self.unit;
        self.done.clear();
        while self.next_arrival < end {
            let arrived = self.next_arrival;
            self.next_arrival += exponential(1.0 / self.rate, &mut self.random);
            let pace = self.paces.mean(arrived, arrived + 0.001);
            let takes = USUAL * (SPREAD * normal(&mut self.random)).exp() * pace;
            let is_rare = self.random.random_bool(RARE);
            self.under_way.push(UnderWay { arrived, next: arrived + takes + delay(0), is_rare });
        }
        for of in &mut self.under_way {
            if of.is_rare && of.next < end {
                let pace = self.paces.mean(of.next, of.next + 0.001);
                of.next += LONGER * (SPREAD * normal(&mut self.random)).exp() * pace + delay(1);
                of.is_rare = false;
            }
        }
        let is_done = |of: &UnderWay| !of.is_rare && of.next < end;
        self.done.extend(self.under_way.iter().filter(|of| is_done(of)).map(|of| of.next - of.arrived));
        self.under_way.retain(|of| !is_done(of));
        self.now = end;
    }

    /// The latency, in seconds, that this share of requests has at most under constant doses, in a run of
    /// `seconds`.
    pub fn quantile(share: f64, unit: f64, pace: Pace, doses: &[f64], seconds: f64) -> f64 {
        let mut service = Self::new(100.0, unit, pace, seconds, 7);
        service.run_until(seconds, doses);
        Influence::new(share, 0.0, [service.latencies().as_slice()])
            .map_or(f64::NAN, |of| of.quantile() / 1e9)
    }

    /// The sensitivity of a function: what a constant dose adds to the quantile, over the dose. The other
    /// function that shows has half of that dose all the time.
    pub fn sensitivity(share: f64, unit: f64, pace: Pace, function: usize, dose: f64, seconds: f64) -> f64 {
        let quantile = |of_function: f64| {
            let mut doses = vec![dose / 2.0, dose / 2.0, 0.0];
            doses[function] = of_function;
            Self::quantile(share, unit, pace, &doses, seconds)
        };
        (quantile(dose) - quantile(0.0)) / (dose * unit)
    }
}

impl Simulation for Requests {
    fn now(&self) -> f64 {
        self.now
    }

    fn rest(&mut self, seconds: f64) {
        self.run_until(self.now + seconds, &[]);
    }

    fn chip(&mut self, doses: &[f64], seconds: f64, _: f64) -> Option<f64> {
        self.run_until(self.now + seconds, doses);
        let count = self.done.len() as f64;
        (count > 0.0).then(|| self.done.iter().sum::<f64>() / count / self.unit)
    }

    fn units(&self) -> f64 {
        self.done.len() as f64
    }

    fn latencies(&self) -> Counts {
        counts(self.done.iter().map(|seconds| (seconds * 1e9) as u64))
    }

    fn adds(&self, doses: &[f64]) -> f64 {
        doses.first().copied().unwrap_or_default() + RARE * doses.get(1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_few_requests_call_shows_in_the_last_of_them_alone() {
        let of = |share, function| {
            let unit = Requests::quantile(share, 0.02, Pace::Steady, &[], 5_000.0);
            Requests::sensitivity(share, unit, Pace::Steady, function, 0.1, 5_000.0)
        };
        let found = [of(0.5, 0), of(0.5, 1), of(0.99, 0), of(0.99, 1), of(0.99, 2)];
        for (found, truth) in found.iter().zip([1.0, 0.0, 1.0, 1.0, 0.0]) {
            assert!((found - truth).abs() < 0.15, "{found} {truth}");
        }
    }
}
