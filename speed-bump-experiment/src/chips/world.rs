//! Simulated services for experiments on chips: the pace of the machine, the functions, and how units vary.
//! For tests and for the benchmark of the statistics.

mod long;
mod open_loop;
mod pace;
mod recorded;
mod requests;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF as _, Normal};

use self::pace::Paces;
pub use self::{
    long::Long,
    open_loop::OpenLoop,
    pace::Pace,
    recorded::{Recorded, Recording},
    requests::Requests,
};
use super::influence::Counts;

/// A simulated service under way.
pub trait Simulation {
    /// Seconds since the beginning.
    fn now(&self) -> f64;

    /// Lets this many seconds pass without delays.
    fn rest(&mut self, seconds: f64);

    /// Runs a chip of this many seconds with these doses, by function, as shares of a unit. Returns its time
    /// per unit, over that without delays; `None` if no unit was done. The first `left_out` units are not
    /// counted.
    fn chip(&mut self, doses: &[f64], seconds: f64, left_out: f64) -> Option<f64>;

    /// The units of the last chip by latency; none if units have no latency of their own.
    fn latencies(&self) -> Counts {
        Counts::new()
    }

    /// The units of the last chip; 0 if they are not counted.
    fn units(&self) -> f64 {
        0.0
    }

    /// The time that these doses add to a unit, in units.
    fn adds(&self, doses: &[f64]) -> f64;
}

/// A service whose clients ask again as soon as they have an answer.
#[derive(Clone, Debug)]
pub struct Service {
    /// The share of its dose that shows, by function.
    pub sensitivities: Vec<f64>,
    /// Its share of a unit's time, by function.
    pub own: Vec<f64>,
    /// Seconds a unit.
    pub unit: f64,
    /// The deviation of a unit's time, as a share.
    pub deviation: f64,
    /// The number of units after a change of doses that still have the old doses.
    pub carry_over: f64,
    /// How its machine's pace changes.
    pub pace: Pace,
    /// A slack that functions share: for each function, 1 if it shares the slack, else 0; and the delay per
    /// unit that stays hidden for all of them together.
    pub slack: Option<(Vec<f64>, f64)>,
    /// Units of a second kind.
    pub heavy: Option<Heavy>,
}

/// Units that take longer than the others, and call other functions.
#[derive(Clone, Debug)]
pub struct Heavy {
    /// Their share of all units.
    pub share: f64,
    /// Their time over the mean time of all units: less than 1 / `share`.
    pub times: f64,
    /// For each function, the share of its calls that these units make.
    pub calls: Vec<f64>,
}

/// A [`Service`] under way.
#[derive(Debug)]
pub struct World {
    service: Service,
    paces: Paces,
    random: Pcg64Mcg,
    now: f64,
    before: Option<f64>,
}

/// A value of the standard normal distribution.
pub(crate) fn normal(random: &mut Pcg64Mcg) -> f64 {
    let uniform: f64 = random.random();
    Normal::standard().inverse_cdf(uniform.clamp(1e-12, 1.0 - 1e-12))
}

fn exponential(mean: f64, random: &mut Pcg64Mcg) -> f64 {
    let uniform: f64 = random.random();
    -mean * uniform.max(1e-12).ln()
}

impl World {
    /// A service that runs for this many seconds at most.
    pub fn new(service: Service, seconds: f64, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let paces = Paces::new(service.pace, seconds, &mut random);
        Self { service, paces, random, now: 0.0, before: None }
    }

    /// What doses add to a unit in which each function has `part` of its mean calls.
    fn added(&self, doses: &[f64], part: impl Fn(usize) -> f64) -> f64 {
        let shown = |(at, (dose, of)): (usize, (&f64, &f64))| dose * of * part(at);
        let shown: f64 = doses.iter().zip(&self.service.sensitivities).enumerate().map(shown).sum();
        let beyond = self.service.slack.as_ref().map_or(0.0, |(group, slack)| {
            let of_group: f64 = doses.iter().zip(group).map(|(dose, is_in)| dose * is_in).sum();
            (of_group - slack).max(0.0)
        });
        shown + beyond
    }

    /// Draws a mix of this many units: their mean time without delays, over that of all units, and what the
    /// doses add to it.
    fn mixed(&mut self, doses: &[f64], units: f64) -> (f64, f64) {
        let Some(heavy) = self.service.heavy.clone() else { return (1.0, self.added(doses, |_| 1.0)) };
        let count = units.round().max(1.0) as usize;
        let of_heavy =
            (0..count).filter(|_| self.random.random_bool(heavy.share)).count() as f64 / count as f64;
        let light = (1.0 - heavy.share * heavy.times) / (1.0 - heavy.share);
        let adds_heavy = self.added(doses, |at| heavy.calls[at] / heavy.share);
        let adds_light = self.added(doses, |at| (1.0 - heavy.calls[at]) / (1.0 - heavy.share));
        let weighted = |heavy: f64, light: f64| of_heavy * heavy + (1.0 - of_heavy) * light;
        (weighted(heavy.times, light), weighted(adds_heavy, adds_light))
    }
}

impl Simulation for World {
    fn now(&self) -> f64 {
        self.now
    }

    fn rest(&mut self, seconds: f64) {
        self.now += seconds;
        self.before = None;
    }

    fn adds(&self, doses: &[f64]) -> f64 {
        self.added(doses, |_| 1.0)
    }

    fn chip(&mut self, doses: &[f64], seconds: f64, left_out: f64) -> Option<f64> {
        let pace = self.paces.mean(self.now, self.now + seconds);
        let expected = pace + self.adds(doses);
        let units = (seconds / (expected * self.service.unit) - left_out).max(0.5);
        let (work, adds) = self.mixed(doses, units);
        let noise = pace * self.service.deviation * normal(&mut self.random) / units.sqrt();
        let before = self.before.replace(adds).unwrap_or(adds);
        let carried = ((self.service.carry_over - left_out) / units).clamp(0.0, 1.0);
        self.now += seconds;
        Some(pace * work + adds + noise + (before - adds) * carried)
    }
}
