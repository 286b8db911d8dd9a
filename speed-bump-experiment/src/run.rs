//! Runs an experiment, phase by phase, on a [`Subject`]. However it ends, no delay is left.

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
pub use times::{MIN_UNITS, Pace, Times, UNITS, WANTED_CHIPS};

/// A service that has no unit under way for more than this share of the time waits for requests.
pub const IDLE: f64 = 0.1;
/// From this many slices on, outliers do not count.
const MIN_FOR_MEDIAN: usize = 20;

/// The options of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The time that it may take, from the first slice on.
    pub total: Duration,
    /// The measured time of a slice; `None`: chosen from the pace of units.
    pub slice: Option<Duration>,
    /// The shortest chip, if units are steps of longer ones, which do not come evenly.
    pub shortest_chip: Option<Duration>,
    /// How functions are grouped, if groups are delayed together.
    pub group: Option<GroupBy>,
    /// The doses of functions, as shares of a unit's time; none: as the bound on the slow-down allows.
    pub doses: Vec<f64>,
    /// The longest delay of a call; `None`: chosen from the time per unit.
    pub longest_call: Option<Nanos>,
    /// Bounds on the unit's metric. The experiment ends if one of them is broken.
    pub bounds: Vec<Bound>,
    /// Whether a slice is a run of a benchmark.
    pub runs: bool,
    /// How long to wait for load that went away.
    pub wait_load: Duration,
    /// Whether metrics are always up to date and fast to read: then slices may be short.
    pub quick: bool,
    /// Whether to delay nothing, and only record chips.
    pub record: bool,
    /// The quantile of latency that is compared, if one is, as a share of units.
    pub quantile: Option<f64>,
}

/// What an experiment is doing now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Phase that runs now.
    pub phase: PhaseKind,
    /// When it ends, if all of its time is needed.
    pub ends: Nanos,
    /// By what share a unit of the last slice took longer than one without delays.
    pub slowdown: Option<f64>,
    /// Until when it waits, without delays, for load that went away; `None` if it does not wait.
    pub waits_for_load: Option<Nanos>,
}

impl Options {
    /// An experiment of this length, with the defaults for all else.
    pub fn new(total: Duration) -> Self {
        Self {
            total,
            slice: None,
            shortest_chip: None,
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

/// Runs an experiment. `measured` has the candidates, and is returned with phases and slices. Calls `watch`
/// after each slice.
pub fn run(
    subject: &mut dyn Subject,
    options: &Options,
    measured: Measured,
    watch: &mut dyn FnMut(&Measured, Now),
) -> Measured {
    let random = Pcg64Mcg::seed_from_u64(measured.seed);
    let unit = measured.census.time_per_unit();
    let Census { start_ns, end_ns, .. } = measured.census;
    // In the census, the benchmark ran once.
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
            // All delays were over: what was measured with them is complete.
            Stop::Metric(_) | Stop::Subject(SubjectError::Metric(_))
                if runner.phase == PhaseKind::Recover => {}
            Stop::Metric(_) | Stop::Subject(SubjectError::Metric(_)) => {
                runner.measured.invalid = Some(said);
            }
            Stop::Load(_) | Stop::TimeWithoutLoad | Stop::Time { .. } | Stop::Subject(_) => {}
        }
        runner.end_phase("stopped");
    }
    // An error does no harm: links that are gone delay nothing.
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

/// Divides the time of an experiment.
pub fn times(options: &Options, pace: Pace) -> Times {
    if options.runs { Times::for_runs(options.total, pace.unit) } else { Times::new(options, pace) }
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
    /// The latest samples of the unit's metric.
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
        // Little's law. Units at a quantile take as long as the quantile says.
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
        self.add_forecast(&arms);
        self.test(arms)?;
        self.ladder()?;
        self.recover()
    }

    /// Adds a forecast to the outcome of the census: when the functions over each worth will have verdicts.
    fn add_forecast(&mut self, arms: &[Treatment]) {
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

    /// If no unit is under way for a part of the time, arrivals set the throughput. Then the experiment
    /// compares latencies.
    fn choose_measure(&mut self) {
        let is_idle = findings::idle(&self.measured).is_some_and(|share| share > IDLE);
        let is_open = is_idle && self.latency.is_some() && !self.measured.rules.closed_loop;
        if self.measured.by == By::Throughput && is_open && !self.options.runs {
            self.measured.by = By::Latency;
            self.learn_unit(PhaseKind::Census);
            self.noise = self.noise(PhaseKind::Census).max(self.noise);
        }
    }

    /// Measures without delays, to check that the service is as before.
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

    /// Sets the time per unit from the slices of a phase that have no delays.
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
            // Later, the guard compares with the latest slices.
            if phase == PhaseKind::Census {
                (self.pace, self.latency) = (pace, latency);
            }
        }
    }

    /// The noise of the compared quantile: how much slices without delays differ in their influence on it, as
    /// a share of the quantile. `None` if no quantile is compared.
    fn noise_of_influence(&self) -> Option<f64> {
        let controls = || self.measured.of_phase(PhaseKind::Census);
        let influence = findings::influence(&self.measured, controls())?;
        let said: Vec<f64> = controls().filter_map(|slice| influence.mean(&slice.latencies)).collect();
        let mean = said.iter().sum::<f64>() / said.len().max(1) as f64;
        let squares: f64 = said.iter().map(|of| (of - mean).powi(2)).sum();
        let deviation = (squares / (said.len() as f64 - 1.0).max(1.0)).sqrt();
        // Chips do not have the length of these slices.
        let of_census = controls().map(Slice::span).sum::<f64>() / said.len().max(1) as f64;
        let longer = of_census / (self.times.slice.0 as f64).max(1.0);
        Some(deviation / influence.quantile() * longer.sqrt())
    }

    /// By what share slices without delays differ from the slice before: slow changes are not noise. If there
    /// are many slices, outliers do not count.
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
