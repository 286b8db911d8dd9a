//! The experiment itself, phase by phase, on a [`Subject`]. However it ends, no delay is left.

pub(crate) mod confirm;
mod screening;
mod slices;
mod titration;

use std::time::Duration;

use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::{
    record::{By, Measured, Phase, PhaseKind, Treatment},
    schedule::{MOST_SURVIVORS, Times},
    subject::{Subject, SubjectError},
};
use crate::units::Nanos;
use titration::Titrated;

/// Slices without delays before the first delay, at least.
const CENSUS_SLICES: u32 = 8;
/// Slices differ by this at least: few of them may be alike by chance.
const LEAST_NOISE: f64 = 0.005;
/// Slices without delays at the end.
const RECOVERY_SLICES: u32 = 4;

/// How an experiment is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The time that it may take, from the first slice on.
    pub total: Duration,
    /// What is measured of a slice; by itself where it is not given.
    pub slice: Option<Duration>,
    /// Whether all functions are looked at one by one, without a screen.
    pub per_function: bool,
    /// The longest delay of a call.
    pub longest_call: Nanos,
}

/// What an experiment is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// The phase.
    pub phase: PhaseKind,
    /// When it ends, if all of its time is needed.
    pub ends: Nanos,
    /// By what share a unit of the last slice took longer than one without delays.
    pub slowdown: Option<f64>,
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
    let times = Times::of(options.total, measured.candidates.len(), unit, options.slice);
    let begun = subject.now();
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
        watch,
        phase: PhaseKind::Census,
        ends: begun,
        begun,
    };
    if let Err(stop) = runner.all_phases() {
        runner.measured.aborted = Some(stop.to_string());
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
    watch: &'a mut dyn FnMut(&Measured, Now),
    phase: PhaseKind,
    ends: Nanos,
    begun: Nanos,
}

impl Runner<'_> {
    fn all_phases(&mut self) -> Result<(), Stop> {
        self.census()?;
        let candidates = self.candidates();
        self.times =
            Times::of(self.options.total, self.screened_of(&candidates), self.unit, self.options.slice);
        if candidates.is_empty() {
            return Ok(());
        }
        let titrated = self.titrate(&candidates)?;
        if let Titrated::Reacts { share, up } = titrated {
            let (survivors, rest) = if self.screened_of(&candidates) > MOST_SURVIVORS {
                self.screen(&candidates, share, up)?
            } else {
                (candidates, Vec::new())
            };
            self.confirm(&survivors, &rest, share, up)?;
        }
        self.recover()
    }

    /// What a unit takes without delays, and how that varies.
    fn census(&mut self) -> Result<(), Stop> {
        self.begin_phase(PhaseKind::Census, self.times.census);
        let slices = self.times.slices_in(self.times.census).max(CENSUS_SLICES);
        let mut units = 0.0;
        for block in 0..slices {
            let slice = self.slice(block, Treatment::Control, &[])?;
            units += slice.units;
        }
        if units == 0.0 {
            return Err(Stop::Metric(format!(
                "no {} was done in the {} slices of the census: is the service under load?",
                self.measured.unit.name, slices
            )));
        }
        self.learn_unit(PhaseKind::Census);
        self.noise = self.noise(PhaseKind::Census).max(LEAST_NOISE);
        let in_slice = units / f64::from(slices);
        let census = &mut self.measured.census;
        census.slowdown = Some(census.time_per_unit() / self.unit - 1.0);
        if let Some(sampling) = &mut self.measured.sampling {
            sampling.slowdown = sampling.time_per_unit_ns.map(|time| time / self.pace - 1.0);
        }
        self.end_phase(&format!(
            "a unit takes {}; {in_slice:.0} in a slice, which vary by {:.1} %",
            Nanos(self.unit as u64),
            self.noise * 100.0
        ));
        Ok(())
    }

    /// The candidates that are worth an experiment, the one with the most time of its own first.
    fn candidates(&self) -> Vec<u32> {
        let measured = &self.measured;
        let own = |number: &u32| {
            let of = measured.candidates.get(*number as usize);
            of.and_then(|of| measured.own_per_unit(of)).unwrap_or(0.0)
        };
        let mut candidates: Vec<u32> = measured.worth_it(self.unit).map(|(number, _)| number).collect();
        candidates.sort_by(|a, b| own(b).total_cmp(&own(a)));
        candidates
    }

    /// How many functions a screen would be of.
    fn screened_of(&self, candidates: &[u32]) -> usize {
        if self.options.per_function { 0 } else { candidates.len() }
    }

    /// Whether the service is as before.
    fn recover(&mut self) -> Result<(), Stop> {
        self.begin_phase(PhaseKind::Recover, Nanos(0));
        for block in 0..RECOVERY_SLICES {
            self.slice(block, Treatment::Control, &[])?;
        }
        self.end_phase("no delays");
        Ok(())
    }

    /// What is left of all the time, but for the slices at the end.
    fn time_left(&self) -> Nanos {
        let end = self.begun + Nanos::from(self.options.total);
        let at_end = self.times.whole_slice().0 * u64::from(RECOVERY_SLICES);
        Nanos(end.0.saturating_sub(self.subject.now().0 + at_end))
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
            self.pace = span / units;
            self.latency = latency.map(|latency| latency / units).filter(|latency| *latency > 0.0);
            self.unit = match (self.measured.by, self.latency) {
                (By::Latency, Some(latency)) => latency,
                (By::Latency | By::Throughput, _) => self.pace,
            };
        }
    }

    /// By what share slices without delays differ from each other.
    fn noise(&self, phase: PhaseKind) -> f64 {
        let controls = self.measured.of_phase(phase).filter(|slice| slice.treatment == Treatment::Control);
        let times: Vec<f64> = controls.map(|slice| slice.time_per_unit(self.measured.by)).collect();
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        (squares / (count - 1.0).max(1.0)).sqrt() / mean
    }
}

#[cfg(test)]
mod tests;
