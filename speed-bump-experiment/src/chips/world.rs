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

    /// Lets so many seconds pass without delays.
    fn rest(&mut self, seconds: f64);

    /// A chip of so many seconds with these doses, by function, as shares of a unit: its time per unit, in
    /// units without delays. The first `left_out` units are not counted. `None` where no unit was done.
    fn chip(&mut self, doses: &[f64], seconds: f64, left_out: f64) -> Option<f64>;

    /// The units of the last chip by latency; none where a unit has no latency of its own.
    fn latencies(&self) -> Counts {
        Counts::new()
    }

    /// The units of the last chip, where they are counted.
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
    /// Units after a change of doses that still have the old ones.
    pub carry_over: f64,
    /// How its machine's pace changes.
    pub pace: Pace,
    /// Delay per unit that stays hidden for the functions with `in_group`, together.
    pub slack: Option<(Vec<f64>, f64)>,
    /// Units of a second kind.
    pub heavy: Option<Heavy>,
}

/// Units that take longer than the others, and call other functions.
#[derive(Clone, Debug)]
pub struct Heavy {
    /// How many of all units they are.
    pub share: f64,
    /// How many times the mean time of all units they take: less than 1 / `share`.
    pub times: f64,
    /// The share of its calls that are in them, by function.
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
    /// A service that runs for so many seconds at most.
    pub fn new(service: Service, seconds: f64, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let paces = Paces::new(service.pace, seconds, &mut random);
        Self { service, paces, random, now: 0.0, before: None }
    }

    /// What doses add where each function has this part of its calls, for each of all units.
    fn added(&self, doses: &[f64], part: impl Fn(usize) -> f64) -> f64 {
        let shown = |(at, (dose, of)): (usize, (&f64, &f64))| dose * of * part(at);
        let shown: f64 = doses.iter().zip(&self.service.sensitivities).enumerate().map(shown).sum();
        let beyond = self.service.slack.as_ref().map_or(0.0, |(group, slack)| {
            let of_group: f64 = doses.iter().zip(group).map(|(dose, is_in)| dose * is_in).sum();
            (of_group - slack).max(0.0)
        });
        shown + beyond
    }

    /// What the mix of this many units makes of their mean time without delays, and of what the doses add.
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
