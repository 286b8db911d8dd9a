//! Steps inside long units: calls that each unit makes equally often, and that come evenly. With units of a
//! second a sweep of a minute has too few of them, but it has many steps.

use std::{collections::BTreeSet, time::Duration};

use super::{
    begin::call_of,
    observer::Observer,
    options::Options,
    sampled::is_same,
    unit::{StepsOf, Units},
};
use crate::{
    experiment::{
        guard::Condition,
        live::Counted,
        metric::{Metrics, Reading, steps::Ends},
        record::{By, InnerUnit, StepsOfUnits},
        run::{IDLE, MIN_UNITS, UNITS, WANTED_CHIPS},
    },
    probe::plan::SelectedFunction,
    sampling::profile::{FunctionSeen, Profile},
    session::{handle::Handle, known::FunctionId, snapshot::Snapshot},
    targets::{TargetIndex, Targets},
    units::Nanos,
};

/// A unit has at least this many steps.
const MIN_IN_UNIT: f64 = 4.0;
/// Fewer steps in the census tell too little.
const MIN_STEPS: f64 = 20.0;
/// A chip is at least this many times as long as the longest time without a step: then it has half of the
/// usual steps at least, and does not look as if the load went away.
const GAPS: f64 = 2.0;
/// Chips of steps are worth it if they are at most this part of a chip of units.
const SHORTER: f64 = 0.5;
/// Units make different numbers of calls if the numbers differ by more than this share.
const EQUAL: f64 = 0.1;
/// A function is called inside of units if this share of the samples of the function is inside of a unit.
const INSIDE: f64 = 0.95;
/// With fewer samples of the function, it is unknown whether it is called inside of units.
const MIN_SAMPLES: u64 = 5;
/// The most polls that are kept.
const MAX_POLLS: usize = 4_000;

/// The counts of the census, again and again.
#[derive(Debug, Default)]
pub(super) struct Polls(Vec<Poll>);

#[derive(Clone, Debug)]
struct Poll {
    at: Nanos,
    units: f64,
    /// Calls by function of the session.
    calls: Vec<u64>,
}

/// A function whose calls may be the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Steps {
    /// The time from one step to the next, in ns.
    step: f64,
    /// How long a chip of steps has to be, in ns.
    chip: f64,
    /// Steps of units; `None` if no unit was observed from its beginning to its end.
    of_units: Option<StepsOfUnits>,
}

/// The steps that a sweep counts in place of long units.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) function: SelectedFunction,
    pub(super) inner: InnerUnit,
    /// Its calls in the census.
    pub(super) calls: u64,
    /// How long a chip has to be at least.
    pub(super) chip: Duration,
}

/// A function of a session whose calls may be steps.
#[derive(Clone, Debug)]
pub(super) struct Countable {
    id: FunctionId,
    function: SelectedFunction,
    /// Calls in the census.
    calls: u64,
}

/// What is known of the units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Longer<'a> {
    /// Their name.
    pub(super) name: &'a str,
    /// The function whose calls they are, if they are calls.
    pub(super) unit: Option<&'a SelectedFunction>,
    /// Units under way at once; `None` if unknown.
    pub(super) under_way: Option<f64>,
    /// The time of the sweep.
    pub(super) time: Duration,
}

impl Polls {
    /// Reads the counts and adds them. Steps are not counted if that fails.
    pub(super) fn read(&mut self, handle: &Handle, metrics: &mut Metrics) {
        if self.0.len() < MAX_POLLS
            && metrics.is_quick()
            && let Ok(snapshot) = handle.snapshot()
            && let Ok(reading) = metrics.unit.read(&snapshot)
        {
            self.add(&snapshot, &reading);
        }
    }

    /// Adds the counts of a moment.
    pub(super) fn add(&mut self, snapshot: &Snapshot, reading: &Reading) {
        if self.0.len() < MAX_POLLS {
            let calls = snapshot.known.iter().map(|(id, _)| snapshot.of_id(id).calls).collect();
            self.0.push(Poll { at: snapshot.at, units: reading.units, calls });
        }
    }

    /// Whether more time would tell the steps of a unit: none was observed from its beginning to its end, but
    /// other functions are counted.
    pub(super) fn need_time(&self) -> bool {
        let counts_others = self.0.last().is_some_and(|poll| poll.calls.len() > 1);
        counts_others && self.ends().len() < 2
    }

    /// The steps of long units; `None` if units are not long, or have no steps.
    pub(super) fn choose(
        &self,
        countable: &[Countable],
        profile: &Profile,
        longer: Longer<'_>,
    ) -> Option<Chosen> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        let span = last.at.0.saturating_sub(first.at.0) as f64;
        let unit = span / (last.units - first.units);
        if !unit.is_finite() || !is_long(unit, longer.time) {
            return None;
        }
        let outer: Vec<&SelectedFunction> = match longer.unit {
            Some(unit) => vec![unit],
            None => self.once(countable, longer.under_way).collect(),
        };
        let is_inside = |of: &Countable| {
            let is_inside = |outer: &&SelectedFunction| {
                **outer != of.function
                    && is_called_inside(|seen| is(&of.function, seen), |seen| is(outer, seen), profile)
            };
            outer.iter().any(is_inside)
        };
        let (wanted, chip_of_units) = (wanted_chip(longer.time), MIN_UNITS * unit);
        let found = countable.iter().filter_map(|of| {
            let steps =
                self.steps(of.id, longer.under_way).filter(|of| of.chip <= SHORTER * chip_of_units)?;
            is_inside(of).then_some((of, steps))
        });
        // Long steps differ less from each other, if there are enough of them.
        let order = |of: &Steps| if of.chip <= wanted { (true, of.step) } else { (false, -of.chip) };
        let better = |one: &Steps, other: &Steps| {
            let ((one_fits, one), (other_fits, other)) = (order(one), order(other));
            one_fits.cmp(&other_fits).then(one.total_cmp(&other))
        };
        let (of, steps) = found.max_by(|(_, one), (_, other)| better(one, other))?;
        Some(Chosen {
            function: of.function.clone(),
            calls: of.calls,
            chip: Duration::from_nanos(steps.chip as u64),
            inner: InnerUnit {
                inside: longer.name.to_owned(),
                under_way: longer.under_way.unwrap_or(1.0),
                census: steps.of_units,
                experiment: None,
            },
        })
    }

    /// Functions that each unit calls once.
    fn once<'a>(
        &self,
        countable: &'a [Countable],
        under_way: Option<f64>,
    ) -> impl Iterator<Item = &'a SelectedFunction> {
        let is_once = move |of: &&Countable| {
            let of_units = self.calls_of_units(of.id, under_way);
            of_units.is_some_and(|of| (of.in_unit() - 1.0).abs() < EQUAL)
        };
        countable.iter().filter(is_once).map(|of| &of.function)
    }

    fn calls(poll: &Poll, id: FunctionId) -> f64 {
        poll.calls.get(id.0 as usize).copied().unwrap_or_default() as f64
    }

    /// The polls that found a unit ended, each with the one before it.
    fn ends(&self) -> Vec<&[Poll]> {
        self.0.windows(2).filter(|two| two[1].units > two[0].units).collect()
    }

    /// A function's calls between the ends of units; `None` if there are fewer than two ends, or units make
    /// different numbers of them.
    fn calls_of_units(&self, id: FunctionId, under_way: Option<f64>) -> Option<StepsOfUnits> {
        let mut ends = Ends::default();
        self.0.iter().for_each(|poll| ends.add(poll.units, Self::calls(poll, id)));
        let of_units = ends.steps_of_units()?;
        let ends = self.ends();
        let [_, first] = ends.first()? else { return None };
        let in_unit = of_units.in_unit();
        let may_be_off = in_unit * (EQUAL + (under_way.unwrap_or(1.0) - 1.0).max(0.0)) + 1.0;
        // A unit ended between the two polls.
        let is_equal = ends.iter().all(|two| {
            let expected = Self::calls(first, id) + in_unit * (two[1].units - first.units);
            let [before, after] = [0, 1].map(|of: usize| Self::calls(&two[of], id));
            (before - may_be_off..=after + may_be_off).contains(&expected)
        });
        is_equal.then_some(of_units)
    }

    /// A function's calls as steps; `None` if they are few, or not equally many in each unit.
    fn steps(&self, id: FunctionId, under_way: Option<f64>) -> Option<Steps> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        let steps = Self::calls(last, id) - Self::calls(first, id);
        let of_units = self.calls_of_units(id, under_way);
        if of_units.is_none() && self.ends().len() > 1 {
            return None;
        }
        let in_unit = of_units.map_or(steps / (last.units - first.units), |of| of.in_unit());
        if steps < MIN_STEPS || in_unit < MIN_IN_UNIT {
            return None;
        }
        let step = last.at.0.saturating_sub(first.at.0) as f64 / steps;
        // The poll before a step, and the one after it.
        let (mut longest, mut since) = (0_u64, first.at);
        for two in self.0.windows(2) {
            if Self::calls(&two[1], id) > Self::calls(&two[0], id) {
                longest = longest.max(two[1].at.0.saturating_sub(since.0));
                since = two[0].at;
            }
        }
        longest = longest.max(last.at.0.saturating_sub(since.0));
        Some(Steps { step, chip: (UNITS * step).max(GAPS * longest as f64), of_units })
    }
}

impl Chosen {
    /// From now on, counts calls of this function in place of units.
    pub(super) fn count(self, units: &mut Units, counted: &mut Counted, observer: &mut dyn Observer) {
        observer.line(&self.line());
        let Self { function, inner, calls, chip } = self;
        units.count_steps(StepsOf::Function(function.clone()), inner, chip);
        counted.census.units = calls as f64;
        counted.progress = Some(function);
    }

    pub(super) fn line(&self) -> String {
        format!(
            "units take long, so steps inside of them are counted in their place: each {}",
            call_of(&self.function)
        )
    }
}

/// Whether a function of a session is the sampled one.
pub(super) fn is(function: &SelectedFunction, seen: &FunctionSeen) -> bool {
    is_same(&function.file, &function.name, function.line, seen)
}

/// Whether calls of one function are inside of calls of another, by the stacks that were sampled.
pub(super) fn is_called_inside(
    inner: impl Fn(&FunctionSeen) -> bool,
    outer: impl Fn(&FunctionSeen) -> bool,
    profile: &Profile,
) -> bool {
    let inner: Vec<bool> = profile.functions.iter().map(inner).collect();
    let outer: Vec<bool> = profile.functions.iter().map(outer).collect();
    let has = |places: &[bool], place: &u32| places.get(*place as usize) == Some(&true);
    let (mut all, mut inside) = (0, 0);
    for stack in &profile.stacks {
        let samples = stack.works + stack.waits.values().sum::<u64>();
        let Some(position) = stack.functions.iter().position(|place| has(&inner, place)) else { continue };
        all += samples;
        if stack.functions.iter().skip(position + 1).any(|place| has(&outer, place)) {
            inside += samples;
        }
    }
    all >= MIN_SAMPLES && inside as f64 >= INSIDE * all as f64
}

/// The longest chip, in ns, of which enough fit into the time of a sweep.
fn wanted_chip(time: Duration) -> f64 {
    time.as_nanos() as f64 / WANTED_CHIPS
}

/// Whether units of `unit` ns are too long for a sweep that takes this time.
pub(super) fn is_long(unit: f64, time: Duration) -> bool {
    MIN_UNITS * unit > wanted_chip(time)
}

/// The functions of a session whose calls may be steps: all that have no callers of their own.
pub(super) fn countable(between: &Snapshot, targets: &Targets, unit: Option<TargetIndex>) -> Vec<Countable> {
    let caller = |of: &SelectedFunction| targets.get(of.target).and_then(|target| target.caller_pattern());
    let place = |of: &SelectedFunction| (of.file.clone(), of.name.clone(), of.line);
    let all = || between.known.iter();
    let by_caller: BTreeSet<_> =
        all().filter(|(_, of)| caller(of).is_some()).map(|(_, of)| place(of)).collect();
    let may_be = |of: &SelectedFunction| {
        Some(of.target) != unit
            && targets.get(of.target).is_some_and(|target| !target.is_dropped)
            && !by_caller.contains(&place(of))
    };
    let found = all().filter(|(_, of)| may_be(of));
    found.map(|(id, of)| Countable { id, function: of.clone(), calls: between.of_id(id).calls }).collect()
}

/// Whether steps may be counted in place of units: readings take no time, times per unit are compared, and no
/// guard is about the units.
pub(super) fn may_count(options: &Options, metrics: &Metrics) -> bool {
    let is_bound = options.guards.iter().any(|guard| matches!(guard, Condition::Own(_)));
    let unit = &metrics.unit;
    metrics.is_quick() && !unit.is_of_runs() && !is_bound && unit.by() == By::Throughput
}

/// For how long no unit was under way between two readings, in ns; `None` if unknown.
pub(super) fn idle(before: &Reading, after: &Reading) -> Option<f64> {
    Some(after.idle? - before.idle?)
}

/// The mean number of units under way between two readings, which lie `span` apart, by Little's law; `None`
/// if unknown.
pub(super) fn under_way(before: &Reading, after: &Reading, span: Nanos) -> Option<f64> {
    Some((after.latency? - before.latency?) / span.0.max(1) as f64)
}

/// Whether steps may be counted in place of these units: times per unit are compared, and there is always one
/// under way. `idle`: for how long of `span` none was.
pub(super) fn may_be(by: By, idle: Option<f64>, span: Nanos, is_closed: bool) -> bool {
    let is_idle = idle.is_some_and(|idle| idle > IDLE * span.0 as f64);
    by == By::Throughput && (is_closed || !is_idle)
}

#[cfg(test)]
mod tests;
