//! The experiment itself, phase by phase, on a [`Subject`]. However it ends, no delay is left.

mod arms;
mod bounded;
mod census;
mod ladder;
mod load;
mod readings;
mod runs;
mod slices;
mod steps;
mod test;
mod time;
mod times;

use std::{collections::VecDeque, time::Duration};

use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::{
    analysis::{
        findings,
        replay::{Chips, rules},
    },
    bound::{Bound, Window},
    groups::GroupBy,
    outliers,
    plan::forecast,
    record::{By, Census, Measured, Phase, PhaseKind, Slice, Treatment},
    subject::{Subject, SubjectError},
};
use crate::units::Nanos;
pub(crate) use arms::arms;
use load::Load;
use readings::Readings;
use slices::Edge;
pub use time::no_room;
pub use times::{Pace, Times};

/// Without a unit under way for more than this share of the time, a service waits for requests.
const IDLE: f64 = 0.1;
/// From so many slices on, a few that are far off do not count.
const MIN_FOR_MEDIAN: usize = 20;

/// How an experiment is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The time that it may take, from the first slice on.
    pub total: Duration,
    /// What is measured of a slice; by itself where it is not given.
    pub slice: Option<Duration>,
    /// Whether functions are looked at together, by where they are defined.
    pub group: Option<GroupBy>,
    /// The doses of functions, as shares of a unit's time; the bound of the slow-down where there are none.
    pub doses: Vec<f64>,
    /// The longest delay of a call; by itself where it is not given.
    pub longest_call: Option<Nanos>,
    /// What the unit's metric has to stay within: beyond it, everything ends.
    pub bounds: Vec<Bound>,
    /// Whether a slice is a run of a benchmark.
    pub runs: bool,
    /// How long to wait for load that went away.
    pub wait_load: Duration,
    /// Whether metrics can be read at any time, and in no time: then slices may be short.
    pub quick: bool,
    /// Whether to delay nothing, and record chips alone.
    pub record: bool,
    /// The quantile of latency that is compared, if one is, as a share of units.
    pub quantile: Option<f64>,
}

/// What an experiment is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Phase that runs now.
    pub phase: PhaseKind,
    /// When it ends, if all of its time is needed.
    pub ends: Nanos,
    /// By what share a unit of the last slice took longer than one without delays.
    pub slowdown: Option<f64>,
    /// Until when it waits for load that went away, without delays; `None` where it does not.
    pub waits_for_load: Option<Nanos>,
}

impl Options {
    /// One of so long, where nothing else is asked for.
    pub fn new(total: Duration) -> Self {
        Self {
            total,
            slice: None,
            group: None,
            doses: Vec::new(),
            longest_call: None,
            bounds: Vec::new(),
            runs: false,
            wait_load: Duration::from_secs(30),
            quick: false,
            record: false,
            quantile: None,
        }
    }
}

/// Does an experiment. `measured` has the candidates, and is returned with phases and slices; `watch` is
/// called after each slice.
pub fn run(
    subject: &mut dyn Subject,
    options: &Options,
    measured: Measured,
    watch: &mut dyn FnMut(&Measured, Now),
) -> Measured {
    let random = Pcg64Mcg::seed_from_u64(measured.seed);
    let unit = measured.census.time_per_unit();
    let Census { start_ns, end_ns, .. } = measured.census;
    // A census is of one run.
    let first = if options.runs { end_ns.0.saturating_sub(start_ns.0) as f64 } else { unit };
    let pace = Pace { unit: first, under_way: None };
    let times = times(options, pace);
    let begun = subject.now();
    let load = Load::new(unit);
    let mut runner = Runner {
        subject,
        options,
        random,
        measured,
        times,
        unit,
        pace: unit,
        latency: None,
        noise: 0.0,
        window: Window::default(),
        readings: Readings::default(),
        load,
        latest: VecDeque::new(),
        edges: VecDeque::new(),
        watch,
        phase: PhaseKind::Census,
        ends: begun,
        begun,
    };
    if let Err(stop) = runner.all_phases() {
        let said = stop.to_string();
        runner.measured.aborted = Some(said.clone());
        match stop {
            Stop::Guard(why) => runner.measured.guard = Some(why),
            Stop::Invalid(why) => runner.measured.invalid = Some(why),
            // Delays are over then, and what was measured with them is whole.
            Stop::Metric(_) | Stop::Subject(SubjectError::Metric(_))
                if runner.phase == PhaseKind::Recover => {}
            Stop::Metric(_) | Stop::Subject(SubjectError::Metric(_)) => {
                runner.measured.invalid = Some(said);
            }
            Stop::Load(_) | Stop::TimeWithoutLoad | Stop::Time { .. } | Stop::Subject(_) => {}
        }
        runner.end_phase("stopped");
    }
    // Whatever happened: links that are gone delay nothing anyway.
    let _ = runner.subject.set(&[]);
    runner.measured
}

/// Why an experiment ends before its time.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error("{0}")]
    Metric(String),
    #[error("a guard ended it: {0}")]
    Guard(String),
    #[error("time was up before anything was tried; with slices of {slice}, --for {wanted} would do")]
    Time { slice: Nanos, wanted: Nanos },
    #[error("time was up while the load was not there")]
    TimeWithoutLoad,
    #[error("{0}")]
    Load(String),
    #[error("{0}")]
    Invalid(String),
}

/// How the time is divided.
pub fn times(options: &Options, pace: Pace) -> Times {
    if options.runs { Times::of_runs(options.total, pace.unit) } else { Times::new(options, pace) }
}

/// An experiment under way.
struct Runner<'a> {
    subject: &'a mut dyn Subject,
    options: &'a Options,
    random: Pcg64Mcg,
    measured: Measured,
    times: Times,
    /// Time per unit without delays, in ns: what is compared.
    unit: f64,
    /// The time of a slice over its units, in ns.
    pace: f64,
    /// The mean latency of a unit, in ns, where it is measured.
    latency: Option<f64>,
    /// By what share slices without delays differ from each other.
    noise: f64,
    /// What the unit's metric said lately.
    window: Window,
    readings: Readings,
    load: Load,
    /// Times per unit of the latest slices with and without delays, in ns.
    latest: VecDeque<f64>,
    /// Beginnings of the latest slices.
    edges: VecDeque<Edge>,
    watch: &'a mut dyn FnMut(&Measured, Now),
    phase: PhaseKind,
    ends: Nanos,
    begun: Nanos,
}

impl Runner<'_> {
    fn all_phases(&mut self) -> Result<(), Stop> {
        self.census()?;
        self.choose_measure();
        let arms = arms(&mut self.measured, self.unit, self.options.group);
        let unit = if self.options.runs { self.pace_of_runs() } else { self.pace };
        // Little's law. The units that a quantile is about take as long as that.
        let compared = self.measured.by.quantile().map(|_| self.unit);
        let latency = compared.or(self.latency).filter(|_| self.options.quick);
        let under_way = latency.map(|latency| latency / self.pace);
        let census = self.times.slice;
        self.times = times(self.options, Pace { unit, under_way });
        // Shorter slices differ more from each other.
        self.noise *= (census.0 as f64 / self.times.slice.0.max(1) as f64).sqrt().max(1.0);
        if self.options.record {
            self.record()?;
            return self.recover();
        }
        if arms.is_empty() {
            return Ok(());
        }
        self.measured.rules.min_chips = self.min_chips();
        self.tell_forecast(&arms);
        self.test(arms)?;
        self.ladder()?;
        self.recover()
    }

    /// Adds to what is said of the census when the experiment will be able to tell what.
    fn tell_forecast(&mut self, arms: &[Treatment]) {
        let asked = Chips::new(&self.measured, arms.to_vec(), self.unit).asked(&self.measured);
        let total = Nanos::from(self.options.total);
        let noise = self.noise_of_influence().unwrap_or(self.noise);
        let said = forecast(&asked, rules(&self.measured), noise, self.times, total);
        if let (Some(said), Some(census)) = (said, self.measured.phases.last_mut()) {
            census.outcome += &format!("; {said}");
        }
    }

    /// Records chips without delays until the time is up.
    fn record(&mut self) -> Result<(), Stop> {
        let time = self.time_left();
        self.begin_phase(PhaseKind::Test, time);
        let mut block = 0;
        while self.time_left().0 > 0 {
            self.slice(block, Treatment::Control, &[])?;
            block += 1;
        }
        self.end_phase(&format!("{block} chips without delays were recorded"));
        Ok(())
    }

    /// Where no unit is under way for a part of the time, requests come when they like: their latency counts,
    /// and not how many there are.
    fn choose_measure(&mut self) {
        let is_idle = findings::idle(&self.measured).is_some_and(|share| share > IDLE);
        let is_open = is_idle && self.latency.is_some() && !self.measured.rules.closed_loop;
        if self.measured.by == By::Throughput && is_open && !self.options.runs {
            self.measured.by = By::Latency;
            self.learn_unit(PhaseKind::Census);
            self.noise = self.noise(PhaseKind::Census).max(self.noise);
        }
    }

    /// Whether the service is as before.
    fn recover(&mut self) -> Result<(), Stop> {
        self.begin_phase(PhaseKind::Recover, Nanos(0));
        let first = self.measured.slices.len();
        for block in 0..self.recovery_slices() {
            if block > 0 && self.is_out_of_time() {
                break;
            }
            if self.options.runs {
                self.run_of_benchmark(block, Treatment::Control, &[])?;
            } else {
                self.measure(block, Treatment::Control, &[])?;
            }
        }
        let outcome = if self.options.runs || self.was_under_load_at_end(first) {
            "no delays"
        } else {
            "the load had ended"
        };
        self.end_phase(outcome);
        Ok(())
    }

    fn begin_phase(&mut self, kind: PhaseKind, time: Nanos) {
        let now = self.subject.now();
        (self.phase, self.ends) = (kind, now + time);
        self.measured.phases.push(Phase { kind, start_ns: now, end_ns: now, outcome: String::new() });
    }

    fn end_phase(&mut self, outcome: &str) {
        let now = self.subject.now();
        if let Some(phase) = self.measured.phases.last_mut() {
            phase.end_ns = now;
            if phase.outcome.is_empty() {
                outcome.clone_into(&mut phase.outcome);
            }
        }
    }

    /// Takes what a unit takes from the slices without delays of a phase.
    fn learn_unit(&mut self, phase: PhaseKind) {
        let controls = self.measured.of_phase(phase).filter(|slice| slice.treatment == Treatment::Control);
        let (mut span, mut units, mut latency) = (0.0, 0.0, Some(0.0));
        for slice in controls {
            span += slice.span();
            units += slice.units;
            latency = latency.zip(slice.latency_ns).map(|(sum, of)| sum + of);
        }
        if units > 0.0 {
            let pace = span / units;
            let latency = latency.map(|latency| latency / units).filter(|latency| *latency > 0.0);
            let quantile = findings::influence(&self.measured, self.measured.of_phase(phase));
            self.unit = match (self.measured.by, quantile, latency) {
                (By::Throughput, ..) | (_, None, None) => pace,
                (_, Some(quantile), _) => quantile.quantile(),
                (_, None, Some(latency)) => latency,
            };
            // Later, the guard compares with the latest slice.
            if phase == PhaseKind::Census {
                (self.pace, self.latency) = (pace, latency);
            }
        }
    }

    /// By what share of the quantile that is compared slices without delays differ in what they say of it;
    /// `None` if no quantile is compared.
    fn noise_of_influence(&self) -> Option<f64> {
        let controls = || self.measured.of_phase(PhaseKind::Census);
        let influence = findings::influence(&self.measured, controls())?;
        let said: Vec<f64> = controls().filter_map(|slice| influence.mean(&slice.latencies)).collect();
        let mean = said.iter().sum::<f64>() / said.len().max(1) as f64;
        let squares: f64 = said.iter().map(|of| (of - mean).powi(2)).sum();
        let deviation = (squares / (said.len() as f64 - 1.0).max(1.0)).sqrt();
        // The chips have other lengths.
        let of_census = controls().map(Slice::span).sum::<f64>() / said.len().max(1) as f64;
        let longer = of_census / (self.times.slice.0 as f64).max(1.0);
        Some(deviation / influence.quantile() * longer.sqrt())
    }

    /// By what share slices without delays differ from each other: from the one before, so that what changes
    /// slowly is not in it; and where there are many, without those that are far off.
    fn noise(&self, phase: PhaseKind) -> f64 {
        let controls = self.measured.of_phase(phase).filter(|slice| slice.treatment == Treatment::Control);
        let times: Vec<f64> = controls.map(|slice| slice.time_per_unit(self.measured.by)).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let mut steps: Vec<f64> = times.windows(2).map(|pair| (pair[0] - pair[1]).abs()).collect();
        let step = if steps.len() < MIN_FOR_MEDIAN {
            (steps.iter().map(|step| step * step).sum::<f64>() / (steps.len() as f64).max(1.0)).sqrt()
        } else {
            outliers::deviation(&mut steps)
        };
        step / 2.0_f64.sqrt() / mean
    }
}

#[cfg(test)]
mod tests;
