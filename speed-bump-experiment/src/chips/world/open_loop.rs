//! An open loop: requests come at times of their own, whatever the service does, and latencies are compared.
//!
//! One event loop parses a request, asks a device, and answers when that is done. Each function is a step of
//! the loop, or runs elsewhere.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Simulation, exponential, normal};

/// Mean latency without delays, in seconds: a unit.
const LATENCY: f64 = 0.0112;
/// The loop's work on a request before the device and after it, and the time that the device takes, in
/// seconds.
const BEFORE: f64 = 0.0035;
const AFTER: f64 = 0.0006;
const DEVICE: f64 = 0.0102;
/// At times the loop takes this many times as long: for 0.2 to 2 s, every 8 s on average.
const SLOW: f64 = 1.45;
const BETWEEN_SLOW: f64 = 8.0;

/// A service of this kind under way. The first of its functions shows in the latency. The second is hidden by
/// the device, but other requests wait until it is done. The others run elsewhere.
#[derive(Debug)]
pub struct OpenLoop {
    random: Pcg64Mcg,
    /// Requests a second.
    rate: f64,
    now: f64,
    /// When the loop will be free.
    free: f64,
    /// When the next slow time begins, and when it ends.
    slow: (f64, f64),
    next_arrival: f64,
    /// Requests at the device: when the device will be done with each, and when the request arrived. The
    /// first to be done comes last.
    at_device: Vec<(f64, f64)>,
}

impl OpenLoop {
    /// A service with `rate` requests a second.
    pub fn new(rate: f64, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let next_arrival = exponential(1.0 / rate, &mut random);
        let begins = exponential(BETWEEN_SLOW, &mut random);
        let slow = (begins, begins + random.random_range(0.2..2.0));
        Self { random, rate, now: 0.0, free: 0.0, slow, next_arrival, at_device: Vec::new() }
    }

    /// How many times as long the loop takes at this time. Call in the order of times.
    fn pace(&mut self, time: f64) -> f64 {
        while time >= self.slow.1 {
            let begins = self.slow.1 + exponential(BETWEEN_SLOW, &mut self.random);
            self.slow = (begins, begins + self.random.random_range(0.2..2.0));
        }
        if time >= self.slow.0 { SLOW } else { 1.0 }
    }

    /// The latencies of the requests that are done before this time.
    fn run_until(&mut self, end: f64, doses: &[f64]) -> Vec<f64> {
        let delay = |at: usize| doses.get(at).copied().unwrap_or_default() * LATENCY;
        let mut done = Vec::new();
        loop {
            let answers = self.at_device.last().map_or(f64::INFINITY, |(done, _)| *done);
            let event = answers.min(self.next_arrival);
            // The loop is busy until then. Its next work has the doses of that time.
            let begins = event.max(self.free);
            if begins >= end {
                self.now = end;
                return done;
            }
            let pace = self.pace(begins);
            if answers <= self.next_arrival {
                let Some((_, arrived)) = self.at_device.pop() else { continue };
                let takes = AFTER * pace * (1.0 + 0.3 * normal(&mut self.random).abs());
                self.free = begins + takes + delay(0);
                done.push(self.free - arrived);
            } else {
                let arrived = self.next_arrival;
                self.next_arrival += exponential(1.0 / self.rate, &mut self.random);
                let takes = BEFORE * pace * (1.0 + 0.1 * normal(&mut self.random)).max(0.0);
                self.free = begins + takes + delay(1);
                let device = DEVICE * (1.0 + 0.02 * normal(&mut self.random).abs());
                self.at_device.push((begins + device, arrived));
                self.at_device.sort_by(|one, other| other.0.total_cmp(&one.0));
            }
        }
    }

    /// The mean latency over this many seconds with these doses, over that without delays.
    fn latency(&mut self, doses: &[f64], seconds: f64) -> Option<f64> {
        let latencies = self.run_until(self.now + seconds, doses);
        let count = latencies.len() as f64;
        (count > 0.0).then(|| latencies.iter().sum::<f64>() / count / LATENCY)
    }

    /// The sensitivity of a function: what a constant dose adds to the latency, over that dose, in `seconds`.
    pub fn sensitivity(rate: f64, function: usize, dose: f64, seconds: f64) -> f64 {
        let latency = |dose: f64| {
            let mut doses = vec![0.0; function + 1];
            doses[function] = dose;
            Self::new(rate, 7).latency(&doses, seconds).unwrap_or(f64::NAN)
        };
        (latency(dose) - latency(0.0)) / dose
    }
}

impl Simulation for OpenLoop {
    fn now(&self) -> f64 {
        self.now
    }

    fn rest(&mut self, seconds: f64) {
        self.run_until(self.now + seconds, &[]);
    }

    fn chip(&mut self, doses: &[f64], seconds: f64, _: f64) -> Option<f64> {
        self.latency(doses, seconds)
    }

    fn adds(&self, doses: &[f64]) -> f64 {
        doses.first().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_behind_the_device_shows_and_one_beside_it_as_far_as_others_wait_for_it() {
        let latency = OpenLoop::new(20.0, 1).latency(&[], 500.0).unwrap_or_default();
        assert!((0.95..1.1).contains(&latency), "{latency}");
        let of = |function| OpenLoop::sensitivity(20.0, function, 0.2, 500.0);
        let found = [of(0), of(1), of(2)];
        assert!((0.9..1.2).contains(&found[0]), "{found:?}");
        assert!((0.1..0.5).contains(&found[1]), "{found:?}");
        assert_eq!(found[2], 0.0);
    }
}
