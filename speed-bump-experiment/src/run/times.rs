//! How long a chip is, and how long the census takes.

use std::time::Duration;

use serde::Serialize;

use super::Options;
use crate::units::Nanos;

/// Units that a chip should hold; and where units are long, so that chips would be few.
const UNITS: f64 = 8.0;
const MIN_UNITS: f64 = 2.0;
/// So many chips there should be.
const WANTED_CHIPS: f64 = 200.0;
/// So many times the time that a request takes, of those that are under way at once.
const RESPONSES: f64 = 4.0;
/// The shortest chip where metrics can be read at any time, and in no time.
const SHORTEST: Duration = Duration::from_millis(20);
/// And where they cannot.
const SHORTEST_OF_SLOW: Duration = Duration::from_millis(150);
/// The first units of a chip still have the doses of the one before. From so many ns on, chips begin where a
/// unit was done.
const LONG_UNIT: f64 = 2e6;
/// The census takes so long, and so many units.
const CENSUS: Duration = Duration::from_secs(3);
const CENSUS_UNITS: f64 = 20.0;
/// Or so many beyond the quantile that is compared.
const CENSUS_BEYOND: f64 = 10.0;
/// But no more than this part of all the time.
const CENSUS_PART: f64 = 0.25;

/// How units come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The time of a slice over its units, in ns; or of one run of a benchmark.
    pub unit: f64,
    /// Units that are under way at once, where that is known.
    pub under_way: Option<f64>,
}

/// How the time is divided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// What is measured of a chip.
    pub slice: Nanos,
    /// What is dropped before it.
    pub burn_in: Nanos,
    /// For the census.
    pub census: Nanos,
}

impl Times {
    /// Where units come at this pace.
    pub(super) fn new(options: &Options, pace: Pace) -> Self {
        let Pace { unit, under_way } = pace;
        let shortest = if options.quick { SHORTEST } else { SHORTEST_OF_SLOW };
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

    /// The same where a chip is a run of a benchmark, which takes so many ns. It begins with its doses.
    pub(super) fn of_runs(total: Duration, run: f64) -> Self {
        let census = CENSUS_PART * Nanos::from(total).0 as f64;
        Self { slice: Nanos(run as u64), burn_in: Nanos(0), census: Nanos(census as u64) }
    }

    /// A chip with what is dropped before it.
    pub fn whole_slice(&self) -> Nanos {
        self.slice + self.burn_in
    }

    /// How many whole chips fit.
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
