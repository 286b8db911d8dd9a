//! Metrics that fail, jump back and get slow while an experiment runs.

#![allow(clippy::unwrap_used)]

use std::{io, time::Duration};

use super::super::{Options, no_room, run};
use crate::{
    analysis::{
        findings::{Findings, findings},
        verdict::Verdict,
    },
    record::{Measured, PhaseKind},
    simulated::{Function, Noise, Simulated},
    subject::{Sample, Subject, SubjectError},
    testing,
    units::Nanos,
};

const SECOND: u64 = 1_000_000_000;

/// How a metric fails.
#[derive(Clone, Copy)]
enum Fate {
    Fails,
    BeginsAnew,
    TakesSoLong(Nanos),
}

/// A service whose metric fails in this way at this time.
struct Doomed {
    service: Simulated,
    fate: Fate,
    then: Nanos,
    /// Units before it began anew.
    lost: Option<f64>,
    /// How long readings of its metric took, in ns.
    waited: u64,
}

impl Subject for Doomed {
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError> {
        let at = self.service.set(doses)?;
        Ok(Nanos(at.0 + self.waited))
    }

    fn sample(&mut self) -> Result<Sample, SubjectError> {
        let is_doomed = self.now() >= self.then;
        let mut sample = self.service.sample()?;
        sample.at = self.now();
        match self.fate {
            _ if !is_doomed => {}
            Fate::Fails => return Err(SubjectError::Metric(io::Error::other("no page"))),
            Fate::BeginsAnew => sample.units -= *self.lost.get_or_insert(sample.units),
            Fate::TakesSoLong(time) => self.waited += time.0,
        }
        Ok(sample)
    }

    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError> {
        self.service.wait_until(Nanos(time.0.saturating_sub(self.waited)))
    }

    fn now(&self) -> Nanos {
        Nanos(self.service.now().0 + self.waited)
    }
}

const FUNCTION: Function = Function { calls: 5.0, sensitivity: 1.0, slack: 0.0 };

fn options() -> Options {
    Options::new(Duration::from_secs(60))
}

fn swept(fate: Fate, then: Nanos) -> (Findings, Measured) {
    let functions = [("score", FUNCTION, 200), ("render", FUNCTION, 150)];
    let mut measured = testing::measured(&functions);
    measured.rules.closed_loop = true;
    let service = Simulated::new(1e6, vec![FUNCTION; 2], Noise::White(0.03), 5);
    let mut subject = Doomed { service, fate, then, lost: None, waited: 0 };
    let measured = run(&mut subject, &options(), measured, &mut |_, _| {});
    (findings(&measured), measured)
}

#[test]
fn a_metric_that_fails_before_delays_are_over_leaves_no_verdict() {
    let (found, measured) = swept(Fate::Fails, Nanos(u64::MAX));
    assert!(found.factors.iter().all(|of| of.verdict == Verdict::Matters), "{found:#?}");
    let recover = measured.phases.last().unwrap();
    assert_eq!(recover.kind, PhaseKind::Recover);
    let begun = measured.slices[0].start_ns;
    for then in [begun + Nanos(SECOND), begun + Nanos(9 * SECOND), Nanos(recover.start_ns.0 - SECOND)] {
        for (fate, why) in [
            (Fate::Fails, "a metric cannot be read: no page"),
            (Fate::BeginsAnew, "jumped back, from "),
            (Fate::TakesSoLong(Nanos(SECOND)), "takes 1s to be read, and a slice "),
        ] {
            let (found, measured) = swept(fate, then);
            assert!(found.factors.iter().all(|of| of.verdict == Verdict::Undecided), "{found:#?}");
            assert!(found.verdict.starts_with("No verdict: "), "{}", found.verdict);
            assert!(measured.not_valid().is_some_and(|said| said.contains(why)), "{why} {}", found.verdict);
            let end = measured.slices.last().unwrap().end_ns;
            assert!(end < then + Nanos(5 * SECOND), "{why} {end:?}");
        }
    }
}

#[test]
fn a_metric_that_fails_after_the_delays_takes_nothing_with_it() {
    let (_, measured) = swept(Fate::Fails, Nanos(u64::MAX));
    let recover = measured.phases.last().unwrap().start_ns;
    let (found, measured) = swept(Fate::Fails, recover + Nanos(1));
    assert_eq!(measured.aborted.as_deref(), Some("a metric cannot be read: no page"));
    assert!(measured.not_valid().is_none());
    assert!(found.factors.iter().all(|of| of.verdict == Verdict::Matters), "{found:#?}");
}

#[test]
fn units_of_seconds_need_more_time() {
    let mut measured = testing::measured(&[("score", FUNCTION, 200)]);
    assert_eq!(no_room(&options(), &measured), None);
    for seconds in [5, 20] {
        measured.census.end_ns = Nanos(seconds * SECOND);
        measured.census.start_ns = Nanos(0);
        measured.census.units = 1.0;
        let why = no_room(&options(), &measured).unwrap();
        let wanted = format!("Say --for {}s, ", seconds * 2 * 100);
        assert!(why.starts_with(&format!("a unit of work takes {seconds}s")), "{why}");
        assert!(why.contains(&wanted), "{why}");
        let enough = Options::new(Duration::from_secs(seconds * 2 * 100));
        assert_eq!(no_room(&enough, &measured), None);
    }
}
