//! Sweeps a simulated service in simulated time, with the design, chip after chip, but without the runner.
//! For tests and for the benchmark of the statistics.

use std::time::Duration;

use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::{
    design::{Asked, Chip, Design, Found, Rules, Verdict},
    world::Simulation,
};
use crate::{
    run::{Options, Pace, times},
    units::Nanos,
};

/// The rules of a sweep without options.
pub const RULES: Rules = Rules {
    worth: 0.01,
    threshold: 0.1,
    max_slowdown: 0.2,
    min_chips: 0,
    matters_error: Rules::MATTERS_ERROR,
    does_not_error: Rules::DOES_NOT_ERROR,
};

/// The first units of a chip still have the doses of the chip before: this many are not counted.
const LEFT_OUT: f64 = 0.5;
/// The coins have another seed than the service.
const COINS: u64 = 0x5eed;

/// The plan of a sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Seconds of the census.
    pub census: f64,
    /// Seconds a chip.
    pub chip: f64,
    /// Seconds in all.
    pub total: f64,
    /// The quantile that is compared, if one is: the share of units, and what it is without delays, in ns.
    pub quantile: Option<(f64, f64)>,
    /// How long a unit lasts, in seconds, if that is compared.
    pub latency: Option<f64>,
}

impl Plan {
    /// The plan that the tool makes for units of `unit` seconds.
    pub fn new(unit: f64, total: f64) -> Self {
        let options = Options { quick: true, ..Options::new(Duration::from_secs_f64(total)) };
        let times = times(&options, Pace { unit: unit * 1e9, under_way: None });
        let seconds = |time: Nanos| time.0 as f64 / 1e9;
        Self {
            census: seconds(times.census),
            chip: seconds(times.slice),
            total,
            quantile: None,
            latency: None,
        }
    }
}

/// The outcome of a sweep.
#[derive(Clone, Debug)]
pub struct Swept {
    /// By function.
    pub found: Vec<Found>,
    /// Its plan.
    pub plan: Plan,
    /// Seconds that it took.
    pub seconds: f64,
    /// Delays of a chip on one thread, as shares of a unit: the most, and the mean.
    pub planned: (f64, f64),
    /// What doses added to units: the most in a chip, and the mean.
    pub felt: (f64, f64),
}

impl Swept {
    /// The verdict about a function, and the second at which it was reached.
    pub fn verdict(&self, function: usize) -> Option<(Verdict, f64)> {
        let (verdict, chips) = self.found[function].verdict?;
        Some((verdict, self.plan.census + chips as f64 * self.plan.chip))
    }

    /// Whether the 95 % interval of a function, at the end, has this sensitivity in it.
    pub fn holds(&self, function: usize, sensitivity: f64) -> Option<bool> {
        let of = self.found[function].estimated?;
        let quantile = StudentsT::new(0.0, 1.0, of.freedom).ok()?.inverse_cdf(0.975);
        Some((of.sensitivity - sensitivity).abs() <= quantile * of.error)
    }
}

/// Sweeps a service from its beginning.
pub fn sweep(service: &mut dyn Simulation, asked: &[Asked], plan: Plan, seed: u64) -> Swept {
    let mut design = Design::new(asked.to_vec(), RULES).with_quantile(plan.quantile);
    design = design.with_latency(plan.latency.map(|seconds| seconds * 1e9));
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ COINS);
    let threads = asked.iter().map(|asked| asked.thread as usize + 1).max().unwrap_or_default();
    let (mut planned, mut felt) = ((0.0_f64, 0.0), (0.0_f64, 0.0));
    let mut doses = vec![0.0; asked.len()];
    let mut chips = 0.0;
    let mut follows = false;
    service.rest(plan.census);
    while service.now() + plan.chip <= plan.total && !design.is_decided() {
        let drawn = design.draw(&mut random);
        doses.fill(0.0);
        let mut of_threads = vec![0.0_f64; threads];
        for (at, dose) in &drawn {
            doses[*at] = *dose;
            of_threads[asked[*at].thread as usize] += dose;
        }
        let most = of_threads.into_iter().fold(0.0, f64::max);
        let adds = service.adds(&doses);
        planned = (planned.0.max(most), planned.1 + most);
        felt = (felt.0.max(adds), felt.1 + adds);
        chips += 1.0;
        let Some(time) = service.chip(&doses, plan.chip, LEFT_OUT) else {
            follows = false;
            continue;
        };
        let delivered = drawn.iter().map(|(_, dose)| (*dose, *dose)).collect();
        let (latencies, units, span) = (service.latencies(), service.units(), plan.chip * 1e9);
        design.add(Chip { time, latencies, units, span, doses: drawn, delivered, follows });
        follows = true;
    }
    if !design.is_decided() {
        design.estimate();
    }
    let mean = |(most, sum): (f64, f64)| (most, sum / f64::max(chips, 1.0));
    let found = design.found().to_vec();
    Swept { found, plan, seconds: service.now(), planned: mean(planned), felt: mean(felt) }
}
