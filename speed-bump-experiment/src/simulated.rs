//! A simulated service in simulated time, for tests and for the benchmark of the statistics: findings can be
//! compared with the true values.

mod record;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF as _, Normal};

use super::subject::{Counts, Sample, Subject, SubjectError};
use crate::units::Nanos;
pub use record::{record, sweep, sweep_of};

/// How often noise changes.
const STEP: f64 = 50e6;

/// How long a speed of the machine lasts on average.
const SPEED_LASTS: f64 = 4e9;

/// The effect of a function on a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Function {
    /// Calls per unit.
    pub calls: f64,
    /// The share of its delay that shows beyond the slack.
    pub sensitivity: f64,
    /// Delay per unit that stays hidden, in ns.
    pub slack: f64,
}

/// Noise of the time per unit. Deviations are of slices of 200 ms, as shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// Independent at each time.
    White(f64),
    /// Correlated over time.
    Correlated(f64),
    /// White, and units get slower by this share in a minute.
    Drift(f64, f64),
    /// White, and units take twice as long for one twentieth of the time.
    Bursts(f64),
    /// White, and slower by half at first, then gradually less.
    WarmUp(f64),
    /// White, and everything takes half as long again for some seconds, repeatedly.
    TwoSpeeds(f64),
    /// White, and requests that are heavier or lighter by this share, in both calls and time.
    Mix(f64, f64),
}

/// A simulated service.
#[derive(Clone, Debug)]
pub struct Simulated {
    functions: Vec<Function>,
    unit: f64,
    noise: Noise,
    random: Pcg64Mcg,
    normal: Normal,
    now: f64,
    units: f64,
    counts: Vec<[f64; 3]>,
    doses: Vec<f64>,
    /// Delay per unit of all functions together that stays hidden, in ns.
    shared_slack: f64,
    /// Shares of the load, each with the time from which it applies.
    load: Vec<(f64, f64)>,
    state: f64,
}

impl Simulated {
    /// A service whose units take `unit` ns without delays.
    pub fn new(unit: f64, functions: Vec<Function>, noise: Noise, seed: u64) -> Self {
        Self {
            counts: vec![[0.0; 3]; functions.len()],
            doses: vec![0.0; functions.len()],
            functions,
            unit,
            noise,
            random: Pcg64Mcg::seed_from_u64(seed),
            normal: Normal::standard(),
            now: 1e9,
            units: 0.0,
            shared_slack: 0.0,
            load: Vec::new(),
            state: 0.0,
        }
    }

    /// Hides this much delay per unit, in ns, of all functions together.
    pub fn share_slack(&mut self, ns: f64) {
        self.shared_slack = ns;
    }

    /// Sets a share of the load from this time after the beginning, in ns. Call in the order of times.
    pub fn change_load(&mut self, after: f64, share: f64) {
        self.load.push((self.now + after, share));
    }

    fn load(&self) -> f64 {
        self.load.iter().rev().find(|(from, _)| *from <= self.now).map_or(1.0, |(_, share)| *share)
    }

    fn draw(&mut self) -> f64 {
        let uniform: f64 = self.random.random();
        self.normal.inverse_cdf(uniform.clamp(1e-12, 1.0 - 1e-12))
    }

    /// The factors of this step for the time of a unit and for its calls.
    fn factors(&mut self, step: f64) -> (f64, f64) {
        let normal = self.draw();
        let white = |deviation: f64| deviation * normal * (200e6 / step).sqrt();
        match self.noise {
            Noise::White(deviation) => (1.0 + white(deviation), 1.0),
            Noise::Correlated(deviation) => {
                // A tenth of the noise is new in each step of 50 ms.
                let kept = 0.9_f64.powf(step / STEP);
                self.state = kept * self.state + (1.0 - kept * kept).sqrt() * normal;
                (1.0 + deviation * self.state, 1.0)
            }
            Noise::Drift(deviation, by) => (1.0 + white(deviation) + by * (self.now - 1e9) / 60e9, 1.0),
            Noise::Bursts(deviation) => {
                let burst = if self.random.random_bool(0.05) { 1.0 } else { 0.0 };
                (1.0 + white(deviation) + burst, 1.0)
            }
            Noise::WarmUp(deviation) => {
                (1.0 + white(deviation) + 0.5 * (-(self.now - 1e9) / 10e9).exp(), 1.0)
            }
            Noise::TwoSpeeds(deviation) => {
                if self.random.random_bool((step / SPEED_LASTS).min(1.0)) {
                    self.state = 0.5 - self.state;
                }
                (1.0 + white(deviation) + self.state, 1.0)
            }
            Noise::Mix(deviation, mix) => {
                let heavy = 1.0 + mix * self.draw() * (200e6 / step).sqrt();
                (heavy.max(0.05) + white(deviation), heavy.max(0.05))
            }
        }
    }
}

impl Subject for Simulated {
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError> {
        self.doses.iter_mut().for_each(|dose| *dose = 0.0);
        for (candidate, dose) in doses {
            if let Some(of) = self.doses.get_mut(*candidate as usize) {
                *of = dose.0 as f64;
            }
        }
        Ok(self.now())
    }

    fn sample(&mut self) -> Result<Sample, SubjectError> {
        let counts = |of: &[f64; 3]| Counts {
            calls: of[0] as u64,
            asked: Nanos(of[1] as u64),
            delivered: Nanos(of[2] as u64),
            ..Counts::default()
        };
        Ok(Sample {
            at: self.now(),
            units: self.units,
            latency: None,
            idle: None,
            latencies: None,
            failed: None,
            under_way: None,
            counts: self.counts.iter().map(counts).collect(),
        })
    }

    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError> {
        while self.now + 1.0 < time.0 as f64 {
            let step = STEP.min(time.0 as f64 - self.now);
            let (longer, more) = self.factors(step);
            let mut unit = self.unit * longer.max(0.05);
            let shows = |(function, dose): (&Function, &f64)| {
                function.sensitivity * (dose * function.calls * more - function.slack).max(0.0)
            };
            let all: f64 = self.functions.iter().zip(&self.doses).map(shows).sum();
            // Delays may also make units faster: a service may answer at once that it is busy.
            unit += if all > 0.0 { (all - self.shared_slack).max(0.0) } else { all };
            unit = unit.max(0.05 * self.unit);
            let units = step / unit * self.load();
            self.units += units;
            for ((function, dose), counts) in self.functions.iter().zip(&self.doses).zip(&mut self.counts) {
                let calls = units * function.calls * more;
                counts[0] += calls;
                counts[1] += calls * dose;
                counts[2] += calls * dose;
            }
            self.now += step;
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos(self.now as u64)
    }
}
