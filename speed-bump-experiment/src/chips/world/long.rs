//! An open loop of requests that last for several chips.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Pace, Simulation, exponential, normal, pace::Paces};

/// Latencies are spread log-normally.
const SPREAD: f64 = 0.25;
/// When functions are called, as a part of a request without delays; `None`: at any time.
const CALLS: [Option<f64>; 3] = [Some(0.0), None, Some(0.999)];

/// An open loop under way. Each request calls the first function as it begins, the second at some time, and
/// the third before it ends. No request waits for the others.
#[derive(Debug)]
pub struct Long {
    random: Pcg64Mcg,
    paces: Paces,
    /// Requests a second.
    rate: f64,
    /// The mean latency without delays, in seconds: a unit.
    latency: f64,
    now: f64,
    next_arrival: f64,
    under_way: Vec<UnderWay>,
    /// Requests that ended in the last chip.
    done: f64,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    arrived: f64,
    /// When it calls each of the first three functions, and when it ends, if no more delays come.
    times: [f64; 4],
    /// How many of these times are over.
    over: usize,
}

impl Long {
    /// A service with `rate` requests a second, which last `latency` seconds. Runs for `seconds` at most.
    pub fn new(rate: f64, latency: f64, pace: Pace, seconds: f64, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let paces = Paces::new(pace, seconds, &mut random);
        let next_arrival = exponential(1.0 / rate, &mut random);
        Self { random, paces, rate, latency, now: 0.0, next_arrival, under_way: Vec::new(), done: 0.0 }
    }

    /// The mean latency of the requests that end before this time, in seconds; `None` without any.
    fn run_until(&mut self, end: f64, doses: &[f64]) -> Option<f64> {
        while self.next_arrival < end {
            let arrived = self.next_arrival;
            self.next_arrival += exponential(1.0 / self.rate, &mut self.random);
            let usual = self.latency * (-SPREAD * SPREAD / 2.0).exp();
            let pace = self.paces.mean(arrived, arrived + self.latency);
            let takes = usual * (SPREAD * normal(&mut self.random)).exp() * pace;
            let calls = CALLS.map(|at| arrived + takes * at.unwrap_or_else(|| self.random.random()));
            let times = [calls[0], calls[1], calls[2], arrived + takes];
            self.under_way.push(UnderWay { arrived, times, over: 0 });
        }
        for of in &mut self.under_way {
            while let Some(time) = of.times.get(of.over).copied().filter(|time| *time < end) {
                let delay = doses.get(of.over).filter(|_| of.over < CALLS.len());
                let delay = delay.copied().unwrap_or_default() * self.latency;
                of.times.iter_mut().filter(|other| **other >= time).for_each(|other| *other += delay);
                of.over += 1;
            }
        }
        let done = self.under_way.extract_if(.., |of| of.over == of.times.len());
        let (sum, count) =
            done.fold((0.0, 0.0), |(sum, count), of| (sum + of.times[3] - of.arrived, count + 1.0));
        (self.now, self.done) = (end, count);
        (count > 0.0).then(|| sum / count)
    }
}

impl Simulation for Long {
    fn now(&self) -> f64 {
        self.now
    }

    fn rest(&mut self, seconds: f64) {
        self.run_until(self.now + seconds, &[]);
    }

    fn chip(&mut self, doses: &[f64], seconds: f64, _: f64) -> Option<f64> {
        Some(self.run_until(self.now + seconds, doses)? / self.latency)
    }

    fn units(&self) -> f64 {
        self.done
    }

    fn adds(&self, doses: &[f64]) -> f64 {
        doses.iter().take(CALLS.len()).sum()
    }
}
