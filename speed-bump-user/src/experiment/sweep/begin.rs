//! The record of a sweep before its first slice, and the time that is left for slices.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{error::SweepError, options::Options, unit::Units};
use crate::{
    calibrate::kept,
    experiment::{
        live::Counted,
        record::{Measured, Rules, SCHEMA, Unit, Versions},
    },
    probe::plan::SelectedFunction,
    units::Nanos,
};

/// With a smaller share of the time left after preparation, a sweep refuses.
const MIN_LEFT: f64 = 0.2;
/// This many times the preparation is enough time.
const WANTED_LEFT: f64 = 3.0;

/// The time that preparation left.
pub(super) fn time_left(time: Duration, took: Duration) -> Result<Duration, SweepError> {
    let left = time.saturating_sub(took);
    if left >= time.mul_f64(MIN_LEFT) {
        return Ok(left);
    }
    let seconds = |time: Duration| Nanos::from(Duration::from_secs(time.as_secs()));
    Err(SweepError::NoTimeLeft {
        took: seconds(took),
        time: Nanos::from(time),
        wanted: seconds(took.mul_f64(WANTED_LEFT) + Duration::from_secs(1)),
    })
}

/// The record before its first slice.
pub(super) fn begin(options: &Options, units: &Units, counted: &Counted) -> Result<Measured, SweepError> {
    let Counted { candidates, census, .. } = counted;
    if census.units <= 0.0 {
        let seconds = (census.end_ns.0 - census.start_ns.0) / 1_000_000_000;
        return Err(SweepError::NoUnits { unit: units.source.clone(), seconds });
    }
    if candidates.iter().all(|candidate| candidate.calls == 0) {
        return Err(SweepError::NotCalled);
    }
    let unit = &units.metrics.unit;
    let name = unit_name(units, counted.progress.as_ref());
    Ok(Measured {
        schema: SCHEMA.to_owned(),
        seed: options.seed.unwrap_or_else(seed),
        versions: Versions {
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            commit: speed_bump_session::COMMIT.to_owned(),
        },
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpu: kept::processor().unwrap_or_default(),
        command: std::env::args_os().map(|of| of.to_string_lossy().into_owned()).collect(),
        rules: Rules {
            worth: options.worth,
            threshold: options.threshold,
            max_slowdown: options.max_slowdown,
            min_chips: 0,
            // A benchmark waits for its answers.
            closed_loop: options.closed_loop || unit.is_of_runs(),
        },
        unit: Unit { name, source: units.source.clone() },
        inner_unit: None,
        metrics: units.further.clone(),
        by: unit.by(),
        candidates: candidates.clone(),
        groups: Vec::new(),
        arms: Vec::new(),
        census: *census,
        sampling: None,
        waits: Vec::new(),
        around: None,
        threads: Vec::new(),
        missed_calls: Vec::new(),
        phases: Vec::new(),
        slices: Vec::new(),
        load_changes: Vec::new(),
        load: None,
        aborted: None,
        invalid: None,
        guard: None,
    })
}

/// The name of the unit: `call of handle (app.py)`, or what its metric counts.
pub(super) fn unit_name(units: &Units, function: Option<&SelectedFunction>) -> String {
    match function {
        Some(function) => call_of(function),
        None => units.metrics.unit.unit().unwrap_or_default().to_owned(),
    }
}

/// `call of handle (app.py)`.
pub(super) fn call_of(function: &SelectedFunction) -> String {
    let file = function.file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    format!("call of {} ({file})", function.name)
}

/// A new seed each time.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64) % 1_000_000_000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn preparation_is_part_of_the_time() {
        let seconds = Duration::from_secs;
        assert_eq!(time_left(seconds(120), seconds(20)).unwrap(), seconds(100));
        assert_eq!(time_left(seconds(10), seconds(8)).unwrap(), seconds(2));
        for took in [9, 10, 30] {
            let error = time_left(seconds(10), seconds(took)).unwrap_err();
            assert_eq!(error.kind(), FailureKind::Usage);
            let text = error.to_string();
            assert!(text.starts_with(&format!("preparation took {took}s of the 10s that --for")), "{text}");
            assert!(text.ends_with(&format!("--for {}s or more", 3 * took + 1)), "{text}");
        }
    }
}
