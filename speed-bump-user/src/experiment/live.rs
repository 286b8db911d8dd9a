//! A running service as the subject of an experiment, through a session.

mod expiry;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    load_command::LoadSeen,
    metric::{Metrics, Reading},
    record::{Candidate, Census, InnerUnit, Origin},
    subject::{Counts, Run, Sample, Subject, SubjectError},
};
use crate::{
    policy::{DelayBound, Dose, Selection},
    probe::plan::SelectedFunction,
    session::{SessionError, handle::Handle, quit::Quit, snapshot::Snapshot},
    stats::report::SessionReport,
    sys::clock::now,
    targets::{TargetIndex, TargetKind, Targets},
    units::Nanos,
};
use expiry::Expiry;

/// Waits sleep in pieces of this length, to notice the end of the session.
const PIECE: Duration = Duration::from_millis(50);
/// No delay.
pub(crate) const NOTHING: Dose = Dose { delay: Nanos(0), frequency: 1 };

/// A live service.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    handle: &'a Handle,
    quit: &'a Quit,
    metrics: Metrics,
    /// The function of each candidate.
    functions: Vec<SelectedFunction>,
    doses: BTreeMap<u32, Nanos>,
    /// The functions that may have a dose now. When doses expire, only these get a dose of zero: there is no
    /// room for a dose of each function.
    dosed: Dosed,
    /// Whether a warning said that a further metric cannot be read.
    told: bool,
    /// The command that makes the load, if the sweep started one.
    load: Option<LoadSeen>,
    expiry: Expiry,
}

type Dosed = Arc<Mutex<Vec<SelectedFunction>>>;

impl<'a> Live<'a> {
    /// Takes a session whose functions have no delay, and the metrics. Its doses end when the calling thread
    /// hangs for some seconds.
    ///
    /// # Errors
    /// The watching thread could not be started.
    pub(crate) fn new(
        handle: &'a Handle,
        quit: &'a Quit,
        metrics: Metrics,
        functions: Vec<SelectedFunction>,
    ) -> io::Result<Self> {
        let controls = handle.controls().clone();
        let dosed = Dosed::default();
        let expire = Arc::clone(&dosed);
        let expiry = Expiry::watch(expiry::PATIENCE, move || {
            let nothing = |function: &SelectedFunction| (Selection::Function(function.clone()), NOTHING);
            let all: Vec<(Selection, Dose)> = lock(&expire).iter().map(nothing).collect();
            // A session that is over has no delays.
            if let Err(error) = controls.set(&all) {
                tracing::warn!("doses that have expired could not be taken back: {error}");
            }
        })?;
        let doses = BTreeMap::new();
        Ok(Self { handle, quit, metrics, functions, doses, dosed, told: false, load: None, expiry })
    }

    /// The longer unit, if units are steps inside of it.
    pub(crate) fn inner_unit(&self) -> Option<InnerUnit> {
        self.metrics.unit.inner_unit()
    }

    /// Takes the command that makes the load of this service.
    pub(crate) fn under(self, load: Option<LoadSeen>) -> Self {
        Self { load, ..self }
    }
}

fn lock(dosed: &Mutex<Vec<SelectedFunction>>) -> MutexGuard<'_, Vec<SelectedFunction>> {
    // The list is consistent: it is replaced as a whole.
    dosed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subject for Live<'_> {
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError> {
        if self.expiry.hear() {
            self.doses.clear();
        }
        let wanted: BTreeMap<u32, Nanos> = doses.iter().copied().collect();
        let gone = self.doses.keys().filter(|of| !wanted.contains_key(of)).map(|of| (*of, Nanos(0)));
        let new = wanted.iter().filter(|(of, dose)| self.doses.get(of) != Some(dose));
        let changed = gone.chain(new.map(|(of, dose)| (*of, *dose)));
        let change = |(of, delay): (u32, Nanos)| {
            let function = self.functions.get(of as usize)?;
            Some((Selection::Function(function.clone()), Dose { delay, frequency: 1 }))
        };
        let changes: Vec<(Selection, Dose)> = changed.filter_map(change).collect();
        if changes.is_empty() {
            return Ok(now());
        }
        // If setting fails, the old doses stay in effect.
        let either = self.doses.keys().chain(wanted.keys()).collect::<BTreeSet<_>>().into_iter();
        let dosed = either.filter_map(|of| self.functions.get(*of as usize)).cloned().collect();
        *lock(&self.dosed) = dosed;
        let applied = self.expiry.while_set(!wanted.is_empty(), || self.handle.set(&changes))?;
        self.doses = wanted;
        Ok(applied.at)
    }

    fn bound(&mut self, share: f64, window: Nanos) -> Result<(), SubjectError> {
        let bound = DelayBound::new(share, Duration::from_nanos(window.0));
        let bound = bound.map_err(|error| SubjectError::Session(Box::new(error)))?;
        match self.handle.controls().set_bound(bound) {
            // The engine cannot bound delays. The user already got a message about that.
            Err(SessionError::Unbounded) => Ok(()),
            result => Ok(result?),
        }
    }

    fn sample(&mut self) -> Result<Sample, SubjectError> {
        self.expiry.hear();
        let snapshot = self.handle.snapshot()?;
        let counts = |function: &SelectedFunction| {
            let stats = snapshot.stats_of(function);
            Counts {
                calls: stats.calls,
                asked: Nanos(stats.requested_ns),
                delivered: Nanos(stats.delivered_ns),
                bounded: stats.bounded,
                missed: stats.missed,
            }
        };
        let counts = self.functions.iter().map(counts).collect();
        let reading = self.metrics.unit.read(&snapshot).map_err(SubjectError::Metric)?;
        let Reading { units, latency, idle, latencies, failed, under_way, level: _ } = reading;
        Ok(Sample { at: snapshot.at, units, latency, idle, latencies, failed, under_way, counts })
    }

    fn further(&mut self) -> Result<Vec<(Nanos, Option<Reading>)>, SubjectError> {
        let mut readings = Vec::new();
        if self.metrics.further.is_empty() {
            return Ok(readings);
        }
        let snapshot = self.handle.snapshot()?;
        for metric in &mut self.metrics.further {
            self.expiry.hear();
            // Verdicts do not use further metrics.
            let reading = metric.read(&snapshot);
            if let Err(error) = &reading
                && !std::mem::replace(&mut self.told, true)
            {
                tracing::warn!("a further metric has no value for some time: {error}");
            }
            readings.push((now(), reading.ok()));
        }
        Ok(readings)
    }

    fn begin_run(&mut self) -> Result<(), SubjectError> {
        self.metrics.unit.begin_run().map_err(SubjectError::Metric)
    }

    fn finished_run(&mut self) -> Result<Option<Run>, SubjectError> {
        self.metrics.unit.finished_run().map_err(SubjectError::Metric)
    }

    fn load_started_again(&self) -> Option<Nanos> {
        self.load.as_ref().and_then(LoadSeen::started_again)
    }

    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError> {
        // Slices may be longer than the watching thread waits.
        loop {
            self.expiry.hear();
            let next = time.min(now() + Nanos::from(expiry::PATIENCE / 4));
            wait_until(self.handle, self.quit, next)?;
            if next == time {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Nanos {
        now()
    }
}

/// Waits until `time`, while the session runs.
///
/// # Errors
/// The session is over.
pub(crate) fn wait_until(handle: &Handle, quit: &Quit, time: Nanos) -> Result<(), SubjectError> {
    loop {
        let left = Duration::from_nanos(time.0.saturating_sub(now().0));
        let ended = handle.wait_for(left.min(PIECE))?;
        if quit.is_asked() {
            return Err(SubjectError::Stopped);
        }
        if let Some(outcome) = ended {
            let why = outcome.ended.map_or_else(|error| error.to_string(), |why| why.to_string());
            return Err(SubjectError::Over(why));
        }
        if left.is_zero() {
            return Ok(());
        }
    }
}

/// The results of a census: the candidates, and its time and units.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// The function of each candidate.
    pub functions: Vec<SelectedFunction>,
    /// The candidates, in the same order.
    pub candidates: Vec<Candidate>,
    /// Time and units of the census.
    pub census: Census,
    /// A function whose calls are the units; `None` if none was called.
    pub progress: Option<SelectedFunction>,
}

/// The targets of metrics in a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForMetrics<'a> {
    /// All targets of metrics. Their functions are no candidates.
    pub targets: &'a [TargetIndex],
    /// The target whose calls are the units.
    pub unit: Option<TargetIndex>,
    /// Targets whose functions are candidates nevertheless.
    pub tried: [Option<TargetIndex>; 2],
}

/// The counts between two snapshots of a session that times calls, during `units` units. Floors come from its
/// report. Functions of dropped targets are no candidates.
pub(crate) fn counted(
    earlier: &Snapshot,
    later: &Snapshot,
    units: f64,
    targets: &Targets,
    metrics: ForMetrics<'_>,
    report: Option<&SessionReport>,
) -> Counted {
    let between = later.since(earlier);
    let floor = |index: TargetIndex| {
        let target = report.and_then(|report| report.targets.get(index.0 as usize));
        target.map_or(Nanos(0), |target| target.floor_ns)
    };
    let kind = |index: TargetIndex| targets.get(index).map_or(TargetKind::Native, |target| target.kind);
    let caller = |index: TargetIndex| Some(targets.get(index)?.caller_pattern()?.to_owned());
    let (mut functions, mut candidates) = (Vec::new(), Vec::new());
    let mut most: Option<(u64, &SelectedFunction)> = None;
    for (id, function) in between.known.iter() {
        let stats = between.of_id(id);
        if targets.get(function.target).is_none_or(|target| target.is_dropped) {
            continue;
        }
        if metrics.targets.contains(&function.target) {
            let is_unit = Some(function.target) == metrics.unit;
            if is_unit && stats.calls > most.map_or(0, |(calls, _)| calls) {
                most = Some((stats.calls, function));
            }
            if !metrics.tried.contains(&Some(function.target)) {
                continue;
            }
        }
        candidates.push(Candidate {
            name: function.name.clone(),
            file: function.file.clone(),
            line: function.line,
            caller: caller(function.target),
            kind: kind(function.target),
            origin: match kind(function.target) {
                TargetKind::Python => Origin::of_python(&function.file, &[]),
                TargetKind::Native | TargetKind::Usdt => Origin::Native,
            },
            calls: stats.calls,
            // Each call takes some time. If there is none, the helper was not ready to time the calls.
            own_ns: (between.times_of(id).map(|times| Nanos(times.own_ns)))
                .filter(|own| own.0 > 0 || stats.calls == 0),
            waited_ns: None,
            floor_ns: floor(function.target),
            sampled: None,
            sharing: None,
        });
        functions.push(function.clone());
    }
    name_others(&mut candidates);
    let census = Census { start_ns: earlier.at, end_ns: later.at, units, slowdown: None };
    Counted { functions, candidates, census, progress: most.map(|(_, function)| function.clone()) }
}

/// The name of the caller in a candidate for all calls that no other candidate of the function covers.
const OTHERS: &str = "<others>";

fn name_others(candidates: &mut [Candidate]) {
    let of_callers = candidates.iter().filter(|of| of.caller.is_some());
    let by_caller: BTreeSet<_> = of_callers.map(Candidate::function).collect();
    let is_others = |of: &Candidate| of.caller.is_none() && by_caller.contains(&of.function());
    let are_others: Vec<bool> = candidates.iter().map(is_others).collect();
    for (of, _) in candidates.iter_mut().zip(are_others).filter(|(_, is_others)| *is_others) {
        of.caller = Some(OTHERS.to_owned());
    }
}
