//! A sweep: it chooses functions and a unit of work if they are not named, counts calls without delays, and
//! then runs an [experiment](super::run) that delays functions of the running processes.
//!
//! It neither reads flags nor prints: it takes [`Options`], and tells an [`Observer`] what happens.

mod attribution;
mod begin;
mod by_caller;
mod census;
mod choose;
mod chosen_unit;
mod clients;
mod error;
mod find;
mod inner_unit;
mod load;
mod observer;
mod options;
mod outlook;
mod sampled;
mod session;
mod sharing;
mod steps;
mod unit;

use std::time::{Duration, Instant};

use super::{
    guard::{Condition, Guards},
    live::{Counted, Live},
    load_command::LoadCommand,
    machine::Surroundings,
    record::{Experiment, Measured},
    run,
};
use crate::{
    prepare::PrepareError,
    probe::resolve::KnownFunctions,
    sampling::profile::Profile,
    session::{handle::Handle, quit::Quit},
    sys::clock::now,
    units::{Nanos, Pid},
};
use attribution::Asked;
use begin::{begin, time_left};
pub use error::SweepError;
pub use observer::{Observer, Step};
pub use options::{Benchmark, OptionError, Options, UnitSource};
pub(crate) use outlook::Outlook;
use sampled::Found;
use session::{Context, SweepSession};
use sharing::Seen;
pub use unit::UnitError;
use unit::Units;

/// A sweep that has not run yet.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    options: Options,
    quit: Quit,
}

impl Sweep {
    /// A sweep with these options.
    pub fn new(options: Options) -> Self {
        Self { options, quit: Quit::default() }
    }

    /// Sets the [`Quit`] that ends the sweep.
    #[must_use]
    pub fn ended_by(self, quit: Quit) -> Self {
        Self { quit, ..self }
    }

    /// Ends the sweep, from any thread. The measurements until then are kept.
    pub fn quit(&self) -> Quit {
        self.quit.clone()
    }

    /// Checks the options, as [`Sweep::run`] does first.
    ///
    /// # Errors
    /// They are not valid.
    pub fn check(&self) -> Result<(), SweepError> {
        self.options.check()?;
        Units::new(&self.options, &[])?.bounds(&self.options.guards)?;
        Ok(())
    }

    /// Runs the experiment on these processes until everything is decided, the time is over, a guard does not
    /// hold or [`Sweep::quit`] is asked. The record says how it ended: see [`Measured::not_valid`], and its
    /// `guard` and `missed_calls`.
    ///
    /// # Errors
    /// It ended before the first slice. Nothing is left attached.
    pub fn run(&self, processes: &[Pid], observer: &mut dyn Observer) -> Result<Experiment, SweepError> {
        let begun = Instant::now();
        let context = self.context(processes);
        let prepared = context.prepare(begun, observer)?;
        let measured = context.experiment(prepared, begun, observer)?;
        observer.detached();
        Ok(Experiment::new(measured))
    }

    /// Chooses functions and counts calls, and returns what [`Sweep::run`] would do then.
    ///
    /// # Errors
    /// As [`Sweep::run`].
    pub fn plan(&self, processes: &[Pid], observer: &mut dyn Observer) -> Result<Outlook, SweepError> {
        let begun = Instant::now();
        let prepared = self.context(processes).prepare(begun, observer)?;
        let options = self.context(processes).run_options(&prepared.units, begun.elapsed())?;
        let under_way = prepared.seen.under_way.filter(|_| options.quick);
        Ok(Outlook::new(&options, &prepared.measured, under_way))
    }

    fn context<'a>(&'a self, processes: &'a [Pid]) -> Context<'a> {
        Context { options: &self.options, processes, quit: &self.quit, known: KnownFunctions::kept() }
    }
}

/// The results of the preparation.
struct Prepared {
    /// The load, if the sweep started one.
    load: Option<LoadCommand>,
    units: Units,
    guards: Option<Guards>,
    /// The session of the census, which continues.
    session: SweepSession,
    counted: Counted,
    seen: Seen,
    /// The record, without slices.
    measured: Measured,
}

impl Context<'_> {
    /// Chooses functions and unit if they are not named, and counts calls.
    fn prepare(&self, begun: Instant, observer: &mut dyn Observer) -> Result<Prepared, SweepError> {
        let Self { options, quit, .. } = self;
        let ends = now() + Nanos::from(options.time.saturating_sub(begun.elapsed()));
        options.check()?;
        let units = Units::new(options, self.processes)?;
        units.bounds(&options.guards)?;
        let guards = watch(&options.guards, quit)?;
        observer.step(Step::Prepare);
        observer.line(&self.heading());
        if let Some(text) = options.unbounded() {
            observer.warning(&text);
        }
        let load = load::start(options.load.as_deref(), quit, observer)?;
        let or_cause = |error| cause(error, guards.as_ref(), load.as_ref());
        let (mut units, targets, found, session) = match &options.functions {
            Some(targets) => (units, targets.clone().kept().map_err(PrepareError::from)?, None, None),
            None => {
                let choice = find::find(self, units, observer).map_err(or_cause)?;
                (choice.units, choice.targets, Some(choice.found), choice.session)
            }
        };
        let times = units.times_calls() || found.as_ref().is_none_or(Found::may_time);
        let (targets, samples) = (units.before(targets), found.is_none());
        let asked = census::Asked { session, targets, times, samples, ends };
        let counted = census::count(self, asked, &mut units, observer);
        let (mut counted, seen, session) = counted.map_err(or_cause)?;
        let mut waits = None;
        if let Some(profile) = seen.profile.as_ref().or(found.as_ref().map(Found::profile)) {
            let of_units = seen.find_sharing(&mut counted, profile, &*units.metrics.unit);
            attribution::set_origins(&mut counted, profile);
            let asked = Asked::new(&counted, profile);
            attribution::take_out_waits(&mut counted, profile, &asked);
            waits = Some(attribution::waits(&asked, profile, &of_units));
            if let Some(chosen) = self.steps_of_named(&seen, &counted, profile, &units) {
                chosen.count(&mut units, &mut counted, observer);
            }
        }
        if let Some(found) = &found {
            found.complete(&mut counted);
        }
        let mut measured = begin(options, &units, &counted)?;
        measured.rules.closed_loop |= clients::are_none(self.processes, options.children, waits.as_deref());
        measured.waits = waits.unwrap_or_default();
        measured.sampling = found.as_ref().map(Found::record);
        measured.inner_unit = units.metrics.unit.inner_unit();
        if let (Some(_), Some(sampling)) = (&measured.inner_unit, &mut measured.sampling) {
            // This is the time per longer unit, of which sampling saw a few.
            sampling.time_per_unit_ns = None;
        }
        Ok(Prepared { load, units, guards, session, counted, seen, measured })
    }

    /// Steps to count in place of long units, if the user named functions: then the steps are calls of one of
    /// these.
    fn steps_of_named(
        &self,
        seen: &Seen,
        counted: &Counted,
        profile: &Profile,
        units: &Units,
    ) -> Option<inner_unit::Chosen> {
        let unit = counted.progress.as_ref();
        let name = begin::unit_name(units, unit);
        let longer =
            inner_unit::Longer { name: &name, unit, under_way: seen.under_way, time: self.options.time };
        seen.polls.choose(&seen.steps, profile, longer)
    }

    /// `sweep of process 4711, for 120s in all`. Printed before files are read.
    fn heading(&self) -> String {
        let pids: Vec<String> = self.processes.iter().map(ToString::to_string).collect();
        let noun = if pids.len() == 1 { "process" } else { "processes" };
        format!("sweep of {noun} {}, for {} in all", pids.join(", "), Nanos::from(self.options.time))
    }

    /// Measures slices, and detaches.
    fn experiment(
        &self,
        prepared: Prepared,
        begun: Instant,
        observer: &mut dyn Observer,
    ) -> Result<Measured, SweepError> {
        let Prepared { load, units, guards, session, counted, seen, measured } = prepared;
        observer.step(Step::Attach);
        // If the unit's metric needs times of calls, they are timed during the whole experiment.
        let retimed = session.time_calls(units.times_calls());
        if self.quit.is_asked() {
            return Err(cause(SweepError::Stopped, guards.as_ref(), load.as_ref()));
        }
        retimed?;
        let handle = session.handle;
        let options = self.run_options(&units, begun.elapsed());
        let mut metrics = units.metrics;
        metrics.census_is_over();
        observer.prepared();
        let options = options?;
        if let Some(why) = run::no_room(&options, &measured) {
            return Err(SweepError::NoRoom(why));
        }
        let children = self.options.children;
        let before = Surroundings::now(self.processes, children);
        let subject = Live::new(&handle, self.quit, metrics, counted.functions);
        let subject = subject.map_err(SweepError::system("cannot start a thread"))?;
        let mut subject = subject.under(load.as_ref().map(LoadCommand::seen).cloned());
        let mut measured = run::run(&mut subject, &options, measured, &mut |measured, now| {
            observer.slice(measured, now, &handle);
        });
        measured.inner_unit = subject.inner_unit();
        let (around, threads) = before.until_now(children);
        (measured.around, measured.threads) = (Some(around), threads);
        measured.missed_calls = missed_calls(seen.missed_calls, &handle);
        handle.stop();
        // Detach before slow commands end.
        drop(subject);
        drop(handle);
        if let Some(why) = guards.as_ref().and_then(Guards::broken) {
            measured.aborted = Some(format!("a guard ended it: {why}"));
            measured.guard = Some(why.to_owned());
        }
        load::put_in(&mut measured, load.as_ref());
        Ok(measured)
    }

    /// The parameters of the experiment, after a preparation of this length.
    fn run_options(&self, units: &Units, took: Duration) -> Result<run::Options, SweepError> {
        let options = self.options;
        Ok(run::Options {
            total: time_left(options.time, took)?,
            slice: options.slice,
            shortest_chip: units.shortest_chip,
            group: options.group,
            doses: options.doses.clone(),
            record: options.record,
            longest_call: options.longest_call,
            bounds: units.bounds(&options.guards)?,
            runs: units.metrics.unit.is_of_runs(),
            wait_load: options.wait_load,
            quick: units.metrics.is_quick(),
            quantile: units.metrics.unit.by().quantile(),
        })
    }
}

/// Why the sweep ended before the first slice: a guard, or a load that failed, and otherwise this error.
fn cause(error: SweepError, guards: Option<&Guards>, load: Option<&LoadCommand>) -> SweepError {
    match guards.and_then(Guards::broken) {
        Some(why) => SweepError::Guarded(why.to_owned()),
        None => load.and_then(LoadCommand::failed).map_or(error, SweepError::Load),
    }
}

/// Why calls were missed, in the census or later, each reason once.
fn missed_calls(mut before: Vec<String>, handle: &Handle) -> Vec<String> {
    let missed = handle.report().map(|report| report.missed_calls).unwrap_or_default();
    let is_new = |text: &String| !before.contains(text);
    let missed: Vec<_> = missed.into_iter().filter(is_new).collect();
    before.extend(missed);
    before
}

/// Starts the guards, which end everything when one does not hold. They must hold at the beginning.
fn watch(conditions: &[Condition], quit: &Quit) -> Result<Option<Guards>, SweepError> {
    if conditions.is_empty() {
        return Ok(None);
    }
    let is_wanted = || !quit.is_asked();
    if let Some(why) = conditions.iter().find_map(|condition| condition.broken_while(is_wanted)) {
        return Err(SweepError::GuardBroken(why));
    }
    let quit = quit.clone();
    let guards = Guards::watch(conditions.to_vec(), move || quit.ask());
    Ok(Some(guards.map_err(SweepError::system("cannot check the guards"))?))
}
