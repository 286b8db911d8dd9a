//! Which function's calls are the unit of work, where none is named and the processes listen on no socket.

use std::{cmp::Reverse, time::Duration};

use super::{
    choose::{Code, is_function},
    sampled::{is_of, lines},
};
use crate::{
    experiment::{live::Counted, record::Candidate},
    report::table::place,
    sampling::profile::{FunctionSeen, Profile},
    targets::{TargetKind, exact},
};

/// The least number of units of work in all of the time.
const MIN_UNITS: f64 = 120.0;
/// The least number of units per second, however long the sweep is.
const MIN_RATE: f64 = 0.5;
/// How long to count calls of functions that may be the unit, at least and at most.
const COUNTED: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// A function that is just called often enough has this many calls in that time.
const CALLS: f64 = 2.0;
/// The smallest share of the running time in a unit of work.
const OF_UNIT: u64 = 1_000;
/// The most functions that may be the unit.
const MAX_UNITS: usize = 16;

/// Functions whose calls may be the unit of work, the service's own before others, the outermost first.
pub(super) fn outermost(profile: &Profile, code: &Code) -> Vec<FunctionSeen> {
    let least = profile.span.0 / OF_UNIT;
    let may_be = |of: &&FunctionSeen| {
        is_function(of) && of.depth > 0 && of.anywhere_running.0 > least && !lines(of).is_empty()
    };
    let mut functions: Vec<FunctionSeen> = profile.functions.iter().filter(may_be).cloned().collect();
    functions.sort_by_cached_key(|of| (code.origin(of), of.depth, Reverse(of.anywhere_running)));
    functions.truncate(MAX_UNITS);
    functions
}

/// The least number of units per second, for a sweep that takes this time.
fn min_rate(time: Duration) -> f64 {
    (MIN_UNITS / time.as_secs_f64()).max(MIN_RATE)
}

/// How long to count calls of functions that may be the unit, for a sweep that takes this time.
pub(super) fn counting_time(time: Duration) -> Duration {
    let [least, most] = COUNTED;
    Duration::from_secs_f64((CALLS / min_rate(time)).clamp(least.as_secs_f64(), most.as_secs_f64()))
}

/// The unit that was chosen.
pub(super) struct ChosenUnit {
    /// Its line of a targets file.
    pub(super) line: String,
    /// What the report says of the choice.
    pub(super) said: String,
    /// Calls per second.
    pub(super) rate: f64,
}

/// The first of the outermost functions that is called repeatedly, by the counts of a session, for a sweep
/// that takes this time.
pub(super) fn choose(outermost: &[FunctionSeen], counted: &Counted, time: Duration) -> Option<ChosenUnit> {
    let min_rate = min_rate(time);
    let span = (counted.census.end_ns.0 - counted.census.start_ns.0) as f64 / 1e9;
    let rate = |candidate: &&Candidate| candidate.calls as f64 / span;
    let (candidate, rate, line) = outermost.iter().find_map(|function| {
        let found = counted.candidates.iter().filter(|of| is_of(of, function));
        let most = found.max_by_key(|of| of.calls)?;
        let rate = rate(&most);
        let line = exact::selecting_line(TargetKind::Python, &most.file, &most.name);
        line.filter(|_| rate >= min_rate).map(|line| (most, rate, line))
    })?;
    let said = format!(
        "the unit of work was chosen: a call of {} ({}), the outermost function that is called again and \
         again ({} times a second); --progress chooses another",
        candidate.name,
        place(&candidate.file, candidate.line),
        if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
    );
    Some(ChosenUnit { line, said, rate })
}
