//! Chooses the functions that take time, by sampling.

mod too_little;

use std::{path::Path, time::Duration};

use super::{
    attribution::{Time, attributed},
    by_caller::{self, ByCaller},
    choose::{Chosen, Code},
    chosen_unit::{self, ChosenUnit},
    error::SweepError,
    inner_unit,
    observer::{Observer, Step},
    session::Context,
    steps,
};
use crate::{
    experiment::{
        live::Counted,
        metric::Metric,
        record::{Candidate, Sampled, Sampling},
    },
    probe::plan::SelectedFunction,
    sampling::{
        self,
        profile::{FunctionSeen, Profile},
    },
    session::{handle::Handle, snapshot::Snapshot},
    sys::clock::now,
    targets::{TargetKind, exact, source::TargetSource},
    units::Nanos,
};

/// Sampling takes this part of the whole time.
const PART: f64 = 0.05;
/// Sampling takes at least this long.
const MIN: Duration = Duration::from_secs(3);
/// How long native functions are counted before they are timed.
pub(super) const BRIEF: Duration = Duration::from_millis(300);
/// The cost of a trap, if unknown.
const TRAP: Nanos = Nanos(700);
/// The share of the time that the traps of all native functions may take in the census.
const MAX_TRAPS: f64 = 0.1;
/// The share up to which native functions are timed, with a second trap when they return.
const MAX_TIMED: f64 = 0.01;
/// The share of the traps if there are Python functions: then calls are timed, and native functions rarely
/// matter.
const MAX_BESIDE_PYTHON: f64 = 0.02;
/// From this share of the processor time on, the report names time outside of functions.
const TOLD: f64 = 0.05;
/// If more of the interpreter's time belongs to no known function, the sweep ranks nothing.
const MAX_UNATTRIBUTED: f64 = 0.2;
/// Why a function is left out if no target can name it.
const NO_TARGET: &str = "no target selects it: its name or its file is empty, or both together are too long";

/// The results of sampling.
pub(super) struct Found {
    profile: Profile,
    code: Code,
    /// What is worth an experiment.
    worth: f64,
    /// The chosen functions, in order.
    chosen: Vec<FunctionSeen>,
    /// The chosen functions that are asked about by their callers.
    by_caller: Vec<ByCaller>,
    /// Functions that are left out, with their calls per second and the reason.
    left_out: Vec<(FunctionSeen, f64, Nanos, String)>,
    /// Time per unit during sampling.
    time_per_unit: Option<f64>,
    /// What the report says of the unit, if sampling chose it, and its calls per second.
    unit: Option<(String, f64)>,
    /// The cost of traps of the chosen native functions, as a share of a processor.
    traps: f64,
}

impl Found {
    /// Samples the processes. `units` returns the number of units done so far.
    pub(super) fn sample(
        context: &Context<'_>,
        units: &mut dyn FnMut() -> Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<Self, SweepError> {
        let Context { options, quit, .. } = context;
        let time = options.time.mul_f64(PART).max(MIN);
        observer.step(Step::Sample);
        observer.line(&format!("sample: sampling stacks for {}", Nanos::from(time)));
        let (before, begun) = (units(), now());
        let go_on = || !quit.is_asked();
        let profile = sampling::sample(context.processes, options.children, time, go_on)?;
        let (after, ended) = (units(), now());
        if quit.is_asked() {
            return Err(SweepError::Stopped);
        }
        let done = after.zip(before).map(|(after, before)| after - before).filter(|done| *done > 0.0);
        let mut found = Self {
            time_per_unit: done.map(|done| (ended.0 - begun.0) as f64 / done),
            left_out: Vec::new(),
            unit: None,
            traps: 0.0,
            code: Code::new(&profile),
            worth: options.worth,
            profile,
            chosen: Vec::new(),
            by_caller: Vec::new(),
        };
        found.choose(&[]);
        observer.line(&found.line());
        if found.profile.unattributed().is_some_and(|share| share > MAX_UNATTRIBUTED) {
            return Err(SweepError::Blind(found.blind()));
        }
        if found.chosen.is_empty() {
            return Err(found.nothing_sampled());
        }
        Ok(found)
    }

    /// Chooses functions. `loops` are places of functions that never return.
    fn choose(&mut self, loops: &[usize]) {
        let Chosen { functions, no_targets } = self.code.chosen(&self.profile, self.worth, loops);
        let of = |place: usize| self.profile.functions.get(place).cloned();
        self.chosen = functions.into_iter().filter_map(of).collect();
        let left_out = no_targets.into_iter().filter_map(of);
        self.left_out = left_out.map(|of| (of, 0.0, Nanos(0), NO_TARGET.to_owned())).collect();
    }

    /// Functions of the service that were on all stacks of their threads.
    pub(super) fn always_there(&self) -> Vec<FunctionSeen> {
        let places = self.code.always_there(&self.profile, self.worth);
        places.into_iter().filter_map(|place| self.profile.functions.get(place).cloned()).collect()
    }

    /// Chooses again without those of these functions that were not called, by the counts of a session: they
    /// are loops that never return, so no delay would show what they call.
    pub(super) fn choose_without_loops(&mut self, always_there: &[FunctionSeen], counted: &Counted) {
        let is_called =
            |of: &FunctionSeen| counted.candidates.iter().any(|found| is_of(found, of) && found.calls > 0);
        let is_loop = |of: &FunctionSeen| always_there.contains(of) && !is_called(of);
        let functions = self.profile.functions.iter().enumerate();
        let loops: Vec<usize> = functions.filter(|(_, of)| is_loop(of)).map(|(place, _)| place).collect();
        self.choose(&loops);
    }

    /// `sample: 300 samples of 12 threads: 31 functions may take 1 % or more with what they call`.
    fn line(&self) -> String {
        let profile = &self.profile;
        format!(
            "sample: {} samples of {} threads: {} functions may take {:.1} % or more of the time with what \
             they call",
            profile.ticks,
            profile.threads.len(),
            self.chosen.len(),
            self.worth * 100.0,
        )
    }

    /// Whether some of the chosen are native.
    pub(super) fn has_native(&self) -> bool {
        self.chosen.iter().any(|of| of.line.is_none())
    }

    /// Leaves out native functions that are called so often that counting them would slow the service down,
    /// by the counts of a session. `most` is the share of the time that one function may take. Returns
    /// whether there were any: then the others are called more often without them.
    pub(super) fn leave_out(&mut self, counted: &Counted, most: f64) -> bool {
        let before = self.left_out.len();
        self.traps = 0.0;
        let span = Nanos(counted.census.end_ns.0 - counted.census.start_ns.0).0.max(1) as f64;
        let has_python = self.chosen.iter().any(|function| function.line.is_some());
        let mut left = if has_python { MAX_BESIDE_PYTHON } else { MAX_TRAPS };
        let chosen = std::mem::take(&mut self.chosen);
        for function in chosen {
            let is_it = |of: &&Candidate| of.file == function.file && of.name == function.name;
            let found = counted.candidates.iter().filter(|_| function.line.is_none()).find(is_it);
            let Some(candidate) = found else {
                // Python functions, and functions that cannot be probed, which the session reports.
                self.chosen.push(function);
                continue;
            };
            let trap = if candidate.floor_ns.0 == 0 { TRAP } else { candidate.floor_ns };
            let rate = candidate.calls as f64 * 1e9 / span;
            let share = rate * trap.0 as f64 / 1e9;
            if share <= left && share <= most {
                left -= share;
                self.traps += share;
                self.chosen.push(function);
                continue;
            }
            let why = format!(
                "it is called {rate:.0} times a second or more: to count its calls would take \
                 {:.1} % of a processor, more than is left after the others; say --target '{}' to have it \
                 all the same",
                share * 100.0,
                exact::line(TargetKind::Native, &function.file, &function.name)
            );
            self.left_out.push((function, rate, trap, why));
        }
        self.left_out.len() > before
    }

    /// Whether calls may be timed, which costs two traps for a native call. If that would cost too much, own
    /// times come from the samples.
    pub(super) fn may_time(&self) -> bool {
        let is_native = |function: &FunctionSeen| function.line.is_none();
        self.traps <= MAX_TIMED || !self.chosen.iter().all(is_native)
    }

    /// Whether no function is left.
    pub(super) fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Targets that select the chosen functions.
    pub(super) fn targets(&self) -> TargetSource {
        let by_caller = |of: &FunctionSeen| self.by_caller.iter().find(|by| by.function == *of);
        let lines_of = |of: &FunctionSeen| by_caller(of).map_or_else(|| lines(of), ByCaller::lines);
        let lines: Vec<String> = self.chosen.iter().flat_map(lines_of).collect();
        TargetSource::lines("the functions that were sampled", &lines)
    }

    /// Finds functions to ask about by their callers. Whether there are any.
    pub(super) fn ask_by_caller(&mut self) -> bool {
        self.by_caller = by_caller::by_samples(&self.profile, &self.code, &self.is_chosen());
        !self.by_caller.is_empty()
    }

    /// Keeps the functions whose callers make enough calls, by the counts of a session. Returns whether the
    /// session covers them: if not, or without a session, none is kept.
    pub(super) fn keep_by_caller(&mut self, counted: Option<&Counted>) -> bool {
        let by_caller = std::mem::take(&mut self.by_caller);
        let kept = counted.and_then(|counted| by_caller::by_calls(by_caller, counted));
        let is_covered = kept.is_some();
        self.by_caller = kept.unwrap_or_default();
        is_covered
    }

    /// Functions whose calls may be the unit of work.
    pub(super) fn outermost(&self) -> Vec<FunctionSeen> {
        chosen_unit::outermost(&self.profile, &self.code)
    }

    /// Takes one of the outermost functions as the unit of work, by the counts of a session, for a sweep that
    /// takes this time.
    pub(super) fn choose_unit(
        &mut self,
        outermost: &[FunctionSeen],
        counted: &Counted,
        time: Duration,
    ) -> Option<String> {
        let ChosenUnit { line, said, rate } = chosen_unit::choose(outermost, counted, time)?;
        self.unit = Some((said, rate));
        Some(line)
    }

    /// The chosen unit.
    pub(super) fn unit(&self) -> Option<&str> {
        self.unit.as_ref().map(|(said, _)| said.as_str())
    }

    /// Whether units take long, or are not known to be short, for a sweep that takes this time.
    pub(super) fn has_long_units(&self, time: Duration) -> bool {
        let chosen = self.unit.as_ref().map(|(_, rate)| 1e9 / rate);
        chosen.or(self.time_per_unit).is_none_or(|unit| inner_unit::is_long(unit, time))
    }

    /// Lines for functions whose calls may be steps inside of units, beside the chosen functions. `units`:
    /// functions whose calls are units.
    pub(super) fn may_be_steps(&self, units: &[SelectedFunction]) -> Vec<String> {
        steps::may_be_steps(&self.profile, &self.code, units, &self.chosen)
    }

    /// Adds results of sampling to the counts: own times of functions that could not be timed, and the
    /// functions that were left out.
    pub(super) fn complete(&self, counted: &mut Counted) {
        let span = counted.census.end_ns.0.saturating_sub(counted.census.start_ns.0) as f64;
        let is_chosen = self.is_chosen();
        let times = attributed(&self.profile, &is_chosen);
        let functions = self.profile.functions.iter().zip(times).zip(is_chosen);
        let chosen: Vec<(&FunctionSeen, Time)> =
            functions.filter(|(_, is_chosen)| *is_chosen).map(|(of, _)| of).collect();
        for candidate in &mut counted.candidates {
            let Some((seen, time)) = chosen.iter().find(|(of, _)| is_of(candidate, of)) else { continue };
            if candidate.own_ns.is_none() {
                let share = match candidate.kind {
                    TargetKind::Python => time.works / self.profile.ticks.max(1) as f64,
                    TargetKind::Native | TargetKind::Usdt => self.profile.share(seen),
                };
                candidate.own_ns = Some(Nanos((share * span) as u64));
            }
            candidate.sampled = Some(sampled(seen, None));
        }
        for (seen, rate, trap, why) in &self.left_out {
            // A function that was left out is not in the session, and never gets a delay.
            let index = counted.progress.as_ref().or(counted.functions.first()).map(|of| of.target);
            let Some(target) = index else { continue };
            counted.functions.push(SelectedFunction {
                target,
                name: seen.name.clone(),
                file: seen.file.clone(),
                line: seen.line,
            });
            counted.candidates.push(Candidate {
                name: seen.name.clone(),
                file: seen.file.clone(),
                line: seen.line,
                caller: None,
                kind: kind(seen),
                origin: self.code.origin(seen),
                calls: (rate * span / 1e9) as u64,
                own_ns: Some(Nanos((self.profile.share(seen) * span) as u64)),
                waited_ns: None,
                floor_ns: *trap,
                sampled: Some(sampled(seen, Some(why.clone()))),
                sharing: None,
            });
        }
    }

    /// Whether a function is chosen, by its place in the profile.
    fn is_chosen(&self) -> Vec<bool> {
        self.profile.functions.iter().map(|of| self.chosen.contains(of)).collect()
    }

    /// The profile.
    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Text about time in code that cannot be a target.
    fn elsewhere(&self) -> Option<String> {
        let clock = self.profile.clock.as_ref()?;
        let share = |samples: u64| samples as f64 / clock.samples.max(1) as f64;
        let told: Vec<String> = clock
            .elsewhere
            .iter()
            .filter(|(_, samples)| share(**samples) >= TOLD)
            .map(|(what, samples)| format!("{:.0} % in {what}", share(*samples) * 100.0))
            .collect();
        let text = || format!("of the processor time that was sampled, {}", told.join(", "));
        (!told.is_empty()).then(text)
    }

    /// The part for the record.
    pub(super) fn record(&self) -> Sampling {
        let profile = &self.profile;
        let remarks = profile.remarks.iter().cloned().chain(self.unattributed()).chain(self.elsewhere());
        let is_asked = self.is_chosen();
        let (of_chosen, all) = (works(profile, &is_asked), works(profile, &vec![true; is_asked.len()]));
        let is_dismissed = |of: &&FunctionSeen| of.own > 0 && !of.is_everybodys && !self.chosen.contains(of);
        Sampling {
            ticks: profile.ticks,
            rate: profile.rate(),
            threads: profile.threads.len(),
            samples: profile.samples,
            dropped: profile.dropped,
            clock_samples: profile.clock.as_ref().map(|clock| clock.samples),
            elsewhere: profile.clock.as_ref().map(|clock| clock.elsewhere.clone()).unwrap_or_default(),
            dismissed: profile.functions.iter().filter(is_dismissed).count(),
            dismissed_share: if all > 0.0 { (all - of_chosen) / all } else { 0.0 },
            cost: profile.own_cost.0 as f64 / profile.span.0.max(1) as f64,
            time_per_unit_ns: self.time_per_unit,
            slowdown: None,
            unit: self.unit().map(str::to_owned),
            remarks: remarks.collect(),
        }
    }
}

fn kind(function: &FunctionSeen) -> TargetKind {
    if function.line.is_some() { TargetKind::Python } else { TargetKind::Native }
}

/// Samples of Python functions at work that belong to one of these functions.
fn works(profile: &Profile, is_asked: &[bool]) -> f64 {
    attributed(profile, is_asked).iter().map(|time| time.works).sum()
}

/// Lines of a targets file that select a function; empty if no line can.
pub(super) fn lines(function: &FunctionSeen) -> Vec<String> {
    let kind = kind(function);
    let mut lines: Vec<String> =
        exact::selecting_line(kind, &function.file, &function.name).into_iter().collect();
    if !function.is_qualified && !lines.is_empty() {
        lines.extend(exact::selecting_inner_line(kind, &function.file, &function.name));
    }
    lines
}

/// Whether a candidate is the sampled function.
pub(super) fn is_of(candidate: &Candidate, seen: &FunctionSeen) -> bool {
    is_same(&candidate.file, &candidate.name, candidate.line, seen)
}

/// Whether a function of a session with this name is the sampled function.
pub(super) fn is_same(file: &Path, name: &str, line: Option<u32>, seen: &FunctionSeen) -> bool {
    let is_name = || {
        let last = name.rsplit('.').next();
        name == seen.name || (!seen.is_qualified && last == Some(&seen.name))
    };
    let is_same_line = line.zip(seen.line).is_none_or(|(line, seen)| line == seen);
    file == seen.file && is_same_line && is_name()
}

fn sampled(seen: &FunctionSeen, left_out: Option<String>) -> Sampled {
    Sampled {
        own: seen.own,
        running_ns: seen.running,
        threads: seen.threads.len(),
        processes: seen.processes(),
        left_out,
    }
}

/// Counts units without a session, or in one that only counts their calls.
pub(super) fn units_done<'a>(
    metric: &'a mut dyn Metric,
    handle: Option<&'a Handle>,
) -> impl FnMut() -> Option<f64> + 'a {
    move || {
        let snapshot = match handle {
            Some(handle) => handle.snapshot().ok()?,
            None => Snapshot::empty(now()),
        };
        metric.read(&snapshot).ok().map(|reading| reading.units)
    }
}
