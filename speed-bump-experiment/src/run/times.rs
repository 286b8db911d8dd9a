//! How long a chip is, and how long the census takes.

use std::time::Duration;

use serde::Serialize;

use super::Options;
use crate::units::Nanos;

/// The units that a chip should hold; fewer, down to [`MIN_UNITS`], if there would be few chips.
pub const UNITS: f64 = 8.0;
/// The least number of units in a chip.
pub const MIN_UNITS: f64 = 2.0;
/// The number of chips that there should be.
pub const WANTED_CHIPS: f64 = 200.0;
/// A chip takes at least this many times as long as a request.
const RESPONSES: f64 = 4.0;
/// The shortest chip, if metrics are always up to date and fast to read.
const SHORTEST: Duration = Duration::from_millis(20);
/// The shortest chip otherwise.
const SHORTEST_OF_SLOW: Duration = Duration::from_millis(150);
/// The first units of a chip still have doses of the chip before, and are dropped. If units take longer than
/// this, in ns, a chip begins when a unit is done instead.
const LONG_UNIT: f64 = 2e6;
/// The census takes at least this long, and this many units.
const CENSUS: Duration = Duration::from_secs(3);
const CENSUS_UNITS: f64 = 20.0;
/// The census also takes this many units beyond the compared quantile.
const CENSUS_BEYOND: f64 = 10.0;
/// The census takes at most this part of all the time.
const CENSUS_PART: f64 = 0.25;

/// The pace at which units come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The time of a slice over its units, in ns; or of one run of a benchmark.
    pub unit: f64,
    /// Units that are under way at once; `None` if unknown.
    pub under_way: Option<f64>,
}

/// The division of an experiment's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// The measured part of a chip.
    pub slice: Nanos,
    /// The part before it, which is dropped.
    pub burn_in: Nanos,
    /// The time of the census.
    pub census: Nanos,
}

impl Times {
    /// Divides the time for units at this pace.
    pub(super) fn new(options: &Options, pace: Pace) -> Self {
        let Pace { unit, under_way } = pace;
        let shortest = if options.quick { SHORTEST } else { SHORTEST_OF_SLOW };
        let shortest = options.shortest_chip.unwrap_or_default().max(shortest);
        let responses = RESPONSES * under_way.unwrap_or(0.0) * unit;
        let total = Nanos::from(options.total).0 as f64;
        let units = (total / WANTED_CHIPS / unit).clamp(MIN_UNITS, UNITS);
        let by_itself = (units * unit).max(responses).max(Nanos::from(shortest).0 as f64);
        let slice = options.slice.map_or(by_itself, |slice| Nanos::from(slice).0 as f64);
        let burn_in = if unit < LONG_UNIT { under_way.unwrap_or(1.0).max(1.0) * unit } else { 0.0 };
        let beyond = options.quantile.map_or(0.0, |share| CENSUS_BEYOND / share.min(1.0 - share));
        let census = CENSUS_UNITS.max(beyond) * unit;
        let census = census.max(Nanos::from(CENSUS).0 as f64).min(CENSUS_PART * total);
        Self {
            slice: Nanos(slice as u64),
            burn_in: Nanos(burn_in.min(slice) as u64),
            census: Nanos(census as u64),
        }
    }

    /// Divides the time if a chip is a run of a benchmark, which takes `run` ns. A run has its doses from its
    /// beginning, so that nothing is dropped.
    pub(super) fn for_runs(total: Duration, run: f64) -> Self {
        let census = CENSUS_PART * Nanos::from(total).0 as f64;
        Self { slice: Nanos(run as u64), burn_in: Nanos(0), census: Nanos(census as u64) }
    }

    /// The length of a chip, with the part that is dropped.
    pub fn whole_slice(&self) -> Nanos {
        self.slice + self.burn_in
    }

    /// How many whole chips fit into this time.
    pub fn slices_in(&self, time: Nanos) -> u32 {
        u32::try_from(time.0 / self.whole_slice().0.max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_knows_the_quantile_that_is_compared() {
        let census = |quantile, unit| {
            let options = Options { quantile, ..Options::new(Duration::from_secs(120)) };
            Times::new(&options, Pace { unit, under_way: None }).census
        };
        assert_eq!(census(None, 10e6), Nanos(3_000_000_000));
        assert_eq!(census(Some(0.5), 10e6), Nanos(3_000_000_000));
        assert!(census(Some(0.99), 10e6).0.abs_diff(10_000_000_000) < 1_000);
        assert_eq!(census(Some(0.99), 100e6), Nanos(30_000_000_000));
    }

    #[test]
    fn chips_hold_some_units() {
        let mut options = Options::new(Duration::from_secs(120));
        let slice = |options: &Options, unit, under_way| Times::new(options, Pace { unit, under_way }).slice;
        assert_eq!(slice(&options, 10_000.0, None), Nanos(150_000_000));
        options.quick = true;
        assert_eq!(slice(&options, 10_000.0, None), Nanos(20_000_000));
        assert_eq!(slice(&options, 10e6, None), Nanos(80_000_000));
        // Four clients wait for 64 ms each, as a unit is done each 16 ms.
        assert_eq!(slice(&options, 16e6, Some(4.0)), Nanos(256_000_000));
        options.slice = Some(Duration::from_millis(50));
        assert_eq!(slice(&options, 10e6, None), Nanos(50_000_000));
    }
}
