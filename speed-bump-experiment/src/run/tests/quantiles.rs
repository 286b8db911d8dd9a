//! Experiments on quantiles of latency.

use std::time::Duration;

use speed_bump_abi::Latencies;

use super::super::{Options, run};
use crate::{
    analysis::{findings::findings, verdict::Verdict},
    chips::world::{Pace, Requests, Simulation as _},
    latencies::LatencyCounts,
    record::{By, PhaseKind},
    simulated::Function,
    subject::{Counts, Sample, Subject, SubjectError},
    testing,
    units::Nanos,
};

/// Requests of two kinds, of which the rare one calls the second function. Doses are in seconds.
struct Service {
    requests: Requests,
    latencies: Latencies,
    /// How often each function is called by a request.
    calls: [f64; 2],
    doses: [Nanos; 2],
    sample: Sample,
}

impl Service {
    fn new(seed: u64) -> Self {
        let requests = Requests::new(200.0, 1.0, Pace::Steady, 3_000.0, seed);
        let counts = vec![Counts::default(); 2];
        let sample = Sample { latency: Some(0.0), counts, ..Sample::default() };
        let (latencies, doses) = (Latencies::default(), [Nanos(0); 2]);
        Self { requests, latencies, calls: [1.0, 0.02], doses, sample }
    }
}

impl Subject for Service {
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError> {
        self.doses = [Nanos(0); 2];
        doses.iter().for_each(|(of, dose)| self.doses[*of as usize] = *dose);
        Ok(self.now())
    }

    fn sample(&mut self) -> Result<Sample, SubjectError> {
        let latencies = Some(LatencyCounts::new(&self.latencies));
        Ok(Sample { at: self.now(), latencies, ..self.sample.clone() })
    }

    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError> {
        let seconds = time.0.saturating_sub(self.now().0) as f64 / 1e9;
        let mean = self.requests.chip(&self.doses.map(|dose| dose.0 as f64 / 1e9), seconds, 0.0);
        let units = self.requests.units();
        self.sample.units += units;
        self.sample.latency = self.sample.latency.map(|sum| sum + mean.unwrap_or(0.0) * units * 1e9);
        for (bucket, count) in self.requests.latencies() {
            self.latencies.buckets[usize::from(bucket)] += u64::from(count);
        }
        for ((counts, calls), dose) in self.sample.counts.iter_mut().zip(self.calls).zip(self.doses) {
            counts.calls = (self.sample.units * calls) as u64;
            let delay = (units * calls * dose.0 as f64) as u64;
            counts.asked = counts.asked + Nanos(delay);
            counts.delivered = counts.delivered + Nanos(delay);
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos((self.requests.now() * 1e9).round() as u64)
    }
}

/// The ladder tries no delays: a delay that is hidden in the mean may show in a quantile.
#[test]
fn what_few_requests_call_matters_to_the_last_of_them() {
    for (by, takes, expected) in
        [(By::P99, 20.3e6, Verdict::Matters), (By::P50, 8.1e6, Verdict::DoesNotMatter)]
    {
        let function = |calls| Function { calls, sensitivity: 1.0, slack: 0.0 };
        let functions = [("all", function(1.0), 2_000), ("rare", function(0.02), 240)];
        let mut measured = testing::measured(&functions);
        measured.by = by;
        // The record's units take 1 ms.
        measured.census.end_ns = Nanos(measured.census.end_ns.0 * 5);
        let options =
            Options { quick: true, quantile: by.quantile(), ..Options::new(Duration::from_secs(1_500)) };
        let measured = run(&mut Service::new(3), &options, measured, &mut |_, _| {});
        let found = findings(&measured);
        let shown = format!("{found:#?} {:#?}", measured.phases);
        let unit = found.time_per_unit_ns.unwrap();
        assert!((unit / takes - 1.0).abs() < 0.1, "{unit} {shown}");
        let rare = found.factors.iter().find(|factor| factor.name == "rare").unwrap();
        assert_eq!(rare.verdict, expected, "{shown}");
        // The rare function takes 12 ms in a request that calls it.
        assert!((rare.own_ns_per_unit.unwrap() / 12e6 - 1.0).abs() < 0.01, "{shown}");
        let truth = if expected == Verdict::Matters { 1.0 } else { 0.0 };
        assert!(rare.low.unwrap() - 0.1 < truth && truth < rare.high.unwrap() + 0.1, "{shown}");
        assert_eq!(measured.of_phase(PhaseKind::Ladder).count(), 0, "{shown}");
        assert!(found.verdict.contains(if by == By::P99 { "% of the p99, " } else { "" }), "{shown}");
    }
}
