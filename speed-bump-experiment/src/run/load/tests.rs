//! Experiments on simulated services whose load comes and goes.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::super::{Options, run};
use crate::{
    analysis::{
        factor::Factor,
        findings::{Findings, findings},
        verdict::Verdict,
    },
    record::{Mark, Measured, PhaseKind},
    simulated::{Function, Noise, Simulated},
    subject::{Sample, Subject, SubjectError},
    testing,
    units::Nanos,
};

const MS: f64 = 1e6;
const SECOND: f64 = 1e9;
/// Seconds until the end of the last phase with delays, where the load stays as it is.
fn seconds_without_change(functions: [(&str, f64, u64); 2], noise: Noise, seed: u64) -> f64 {
    let (_, measured) = swept(functions, noise, seed, &[]);
    let recover = measured.phases.last().unwrap();
    assert_eq!(recover.kind, PhaseKind::Recover);
    (recover.start_ns.0 - measured.slices[0].start_ns.0) as f64 / SECOND
}

/// Two functions that matter.
const TWO: [(&str, f64, u64); 2] = [("score", 1.0, 200), ("render", 1.0, 150)];
/// Two functions of which one matters.
const ONE: [(&str, f64, u64); 2] = [("score", 0.0, 200), ("render", 1.0, 150)];

/// A sweep of a minute of functions with these sensitivities and own times in us, while the load changes to
/// these shares, each after this many seconds.
fn swept(
    functions: [(&str, f64, u64); 2],
    noise: Noise,
    seed: u64,
    load: &[(f64, f64)],
) -> (Findings, Measured) {
    let functions = functions
        .map(|(name, sensitivity, own)| (name, Function { calls: 5.0, sensitivity, slack: 0.0 }, own));
    let mut measured = testing::measured(&functions);
    measured.seed = seed;
    measured.rules.closed_loop = true;
    let mut service = Simulated::new(MS, functions.map(|(_, function, _)| function).into(), noise, seed);
    load.iter().for_each(|(after, share)| service.change_load(after * SECOND, *share));
    let measured = run(&mut service, &options(), measured, &mut |_, _| {});
    (findings(&measured), measured)
}

fn options() -> Options {
    Options { wait_load: Duration::from_secs(20), ..Options::new(Duration::from_secs(60)) }
}

fn verdicts(found: &Findings) -> Vec<(&str, Verdict)> {
    let mut verdicts: Vec<_> = found.factors.iter().map(|of| (of.name.as_str(), of.verdict)).collect();
    verdicts.sort_unstable_by_key(|(name, _)| *name);
    verdicts
}

fn factor<'a>(found: &'a Findings, name: &str) -> &'a Factor {
    found.factors.iter().find(|factor| factor.name == name).unwrap()
}

const NOISES: [Noise; 7] = [
    Noise::White(0.03),
    Noise::Correlated(0.03),
    Noise::Drift(0.03, 0.2),
    Noise::Bursts(0.03),
    Noise::WarmUp(0.03),
    Noise::TwoSpeeds(0.03),
    Noise::Mix(0.03, 0.05),
];

#[test]
fn load_that_ends_takes_all_verdicts_with_it() {
    for (seed, noise) in (0..).zip(NOISES) {
        let last = seconds_without_change(TWO, noise, seed);
        // In the last tenth of all the time, verdicts would stand.
        for end in [2.1, 5.05, 0.5 * last, 0.7 * last, (last - 1.0).min(50.0)] {
            let (found, measured) = swept(TWO, noise, seed, &[(end, 0.0)]);
            let shown = || format!("{noise:?} {end} {} {:#?}", found.verdict, measured.phases);
            let undecided = [("render", Verdict::Undecided), ("score", Verdict::Undecided)];
            assert_eq!(verdicts(&found), undecided, "{}", shown());
            assert!(!found.validity.holds && measured.not_valid().is_some(), "{}", shown());
            assert!(found.verdict.starts_with("No verdict: the load stopped after "), "{}", shown());
            // The time per unit includes no time without load.
            let takes = found.time_per_unit_ns.unwrap();
            assert!((0.9 * MS..1.7 * MS).contains(&takes), "{takes} {}", shown());
            let idle = measured.slices.iter().filter(|slice| slice.counts() && slice.units == 0.0);
            assert_eq!(idle.count(), 0, "{}", shown());
            // No estimate includes the time without load.
            for factor in found.factors.iter().filter(|of| of.high.is_some()) {
                assert!(factor.high.unwrap() > 0.5, "{factor:#?} {}", shown());
            }
        }
    }
}

/// If only a few units are done in a slice, it takes several slices to notice that none is.
#[test]
fn load_that_ends_is_noticed_where_few_units_are_done() {
    for seed in 0..5 {
        let functions =
            TWO.map(|(name, sensitivity, own)| (name, Function { calls: 5.0, sensitivity, slack: 0.0 }, own));
        let mut measured = testing::measured(&functions);
        measured.rules.closed_loop = true;
        // Noise is as on a machine that is busy with other things.
        let unit = 40.0 * MS;
        measured.census.end_ns = Nanos((measured.census.units * unit) as u64);
        for candidate in &mut measured.candidates {
            candidate.own_ns = candidate.own_ns.map(|own| Nanos(own.0 * 40));
        }
        let of = functions.map(|(_, function, _)| function).into();
        let mut service = Simulated::new(unit, of, Noise::White(0.3), seed);
        service.change_load(20.0 * SECOND, 0.0);
        let options = Options { slice: Some(Duration::from_millis(220)), ..options() };
        let measured = run(&mut service, &options, measured, &mut |_, _| {});
        let found = findings(&measured);
        assert!(found.verdict.starts_with("No verdict: the load stopped after "), "{seed} {found:#?}");
        assert!(found.time_per_unit_ns.unwrap() < 2.0 * unit, "{seed} {found:#?}");
    }
}

/// Verdicts stand if the load goes away just before the time is up.
#[test]
fn load_that_goes_as_time_is_up_takes_nothing_with_it() {
    let functions = [("score", 0.05, 200), ("render", 1.0, 150)];
    let (found, measured) = swept(functions, Noise::White(0.1), 4, &[(56.5, 0.0)]);
    assert_eq!(measured.aborted.as_deref(), Some("time was up while the load was not there"), "{found:#?}");
    assert!(found.validity.holds && measured.not_valid().is_none(), "{found:#?}");
    assert_eq!(factor(&found, "render").verdict, Verdict::Matters, "{found:#?}");
}

#[test]
fn load_that_pauses_is_waited_for() {
    for (seed, noise) in (0..).zip([Noise::White(0.01), Noise::Correlated(0.01), Noise::WarmUp(0.01)]) {
        let last = seconds_without_change(ONE, noise, seed);
        for begin in [0.6, 0.2 * last, 0.5 * last, 0.8 * last] {
            let (found, measured) = swept(ONE, noise, seed, &[(begin, 0.0), (begin + 5.0, 1.0)]);
            let shown = || format!("{noise:?} {begin} {found:#?} {:#?}", measured.phases);
            let expected = [("render", Verdict::Matters), ("score", Verdict::DoesNotMatter)];
            assert_eq!(verdicts(&found), expected, "{}", shown());
            assert!(found.validity.holds, "{}", shown());
            let change = measured.load_changes.first().unwrap();
            let lasted = change.end_ns.unwrap().0 - change.start_ns.0;
            assert!((4_500_000_000..6_500_000_000).contains(&lasted), "{lasted} {}", shown());
            let problem = |text: &str| found.validity.problems.iter().any(|of| of.text.contains(text));
            assert!(problem("the load stopped after "), "{}", shown());
            let end = measured.slices.last().unwrap().end_ns.0 - measured.slices[0].start_ns.0;
            assert!((end as f64) < 62.0 * SECOND, "{end} {}", shown());
            assert!(measured.slices.iter().all(|slice| !slice.counts() || slice.units > 20.0), "{}", shown());
        }
    }
}

#[test]
fn another_load_is_no_load_to_compare_with() {
    for seed in 0..3 {
        for (share, words) in [(0.2, "the load fell to 2"), (4.0, "the load grew to ")] {
            let (found, measured) = swept(TWO, Noise::White(0.02), seed, &[(10.0, share)]);
            assert!(!found.validity.holds, "{share} {found:#?} {:#?}", measured.phases);
            assert!(found.verdict.contains(words), "{share} {}", found.verdict);
        }
    }
}

/// Effects of delays and noise of machines are not taken for a change of the load, however large they are.
#[test]
fn noise_is_not_taken_for_load() {
    for seed in 0..6 {
        for noise in NOISES.into_iter().chain([Noise::White(0.2), Noise::Correlated(0.1)]) {
            for functions in [ONE, [("score", 3.0, 200), ("render", 0.3, 300)]] {
                let (_, measured) = swept(functions, noise, seed, &[]);
                assert_eq!(measured.load_changes, [], "{noise:?} {seed}");
            }
        }
    }
}

#[test]
fn load_that_ends_with_the_experiment_takes_nothing_with_it() {
    let end = seconds_without_change(ONE, Noise::White(0.02), 1);
    let (found, measured) = swept(ONE, Noise::White(0.02), 1, &[(end + 0.2, 0.0)]);
    assert!(found.validity.holds, "{found:#?}");
    let expected = [("render", Verdict::Matters), ("score", Verdict::DoesNotMatter)];
    assert_eq!(verdicts(&found), expected);
    assert_eq!(measured.phases.last().unwrap().outcome, "the load had ended");
    assert_eq!(found.validity.recovery, None);
    let takes = factor(&found, "render").sensitivity.unwrap();
    assert!((0.8..1.2).contains(&takes), "{takes}");
}

/// Clients that go away for a second when units take longer than they are used to.
struct Impatient {
    service: Simulated,
    delayed: bool,
}

impl Subject for Impatient {
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError> {
        let is_delayed = doses.iter().any(|(of, dose)| *of == 0 && dose.0 > 0);
        if is_delayed && !self.delayed && self.now() > Nanos(4_500_000_000) {
            self.service.change_load(0.03 * SECOND, 0.0);
            self.service.change_load(SECOND, 1.0);
        }
        self.delayed = is_delayed;
        self.service.set(doses)
    }

    fn sample(&mut self) -> Result<Sample, SubjectError> {
        self.service.sample()
    }

    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError> {
        self.service.wait_until(time)
    }

    fn now(&self) -> Nanos {
        self.service.now()
    }
}

/// Slices whose delays drive the load away are not dropped in silence, as if it left by chance.
#[test]
fn delays_that_drive_clients_away_leave_no_verdict() {
    let function = |sensitivity| Function { calls: 5.0, sensitivity, slack: 0.0 };
    let functions = [("score", function(1.0), 200), ("render", function(1.0), 150)];
    let mut measured = testing::measured(&functions);
    measured.rules.closed_loop = true;
    let service =
        Simulated::new(MS, functions.map(|(_, function, _)| function).into(), Noise::White(0.02), 3);
    let mut subject = Impatient { service, delayed: false };
    let measured = run(&mut subject, &options(), measured, &mut |_, _| {});
    let found = findings(&measured);
    assert!(!found.validity.holds, "{found:#?} {:#?}", measured.load_changes);
    assert!(found.verdict.contains("each time while functions were delayed"), "{}", found.verdict);
    assert!(measured.load_changes.len() < 12, "{}", measured.load_changes.len());
    assert!(found.factors.iter().all(|of| of.verdict == Verdict::Undecided), "{found:#?}");
}

/// A load that lasts for so many ns. Its command ends 50 ms later and is started again; requests come after
/// another 0.25 s.
struct Repeated {
    service: Simulated,
    lasts: f64,
    /// When the load was started, each time.
    started: Vec<f64>,
}

impl Subject for Repeated {
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError> {
        self.service.set(doses)
    }

    fn sample(&mut self) -> Result<Sample, SubjectError> {
        self.service.sample()
    }

    fn load_started_again(&self) -> Option<Nanos> {
        let now = self.now();
        let mut started = self.started.iter().map(|at| Nanos(*at as u64));
        started.rfind(|at| *at <= now)
    }

    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError> {
        let now = self.now().0 as f64;
        let ends = self.started.last().map_or(now, |at| *at) + self.lasts;
        if time.0 as f64 > ends {
            self.service.wait_until(Nanos(ends as u64))?;
            self.service.change_load(0.0, 0.0);
            self.service.change_load(0.3 * SECOND, 1.0);
            self.started.push(ends + 0.05 * SECOND);
        }
        self.service.wait_until(time)
    }

    fn now(&self) -> Nanos {
        self.service.now()
    }
}

/// Load that ends by itself was not driven away, however often it ends.
#[test]
fn load_that_is_started_again_costs_the_slices_of_that_time_alone() {
    for seed in 0..3 {
        let functions =
            ONE.map(|(name, sensitivity, own)| (name, Function { calls: 5.0, sensitivity, slack: 0.0 }, own));
        let mut measured = testing::measured(&functions);
        (measured.seed, measured.rules.closed_loop) = (seed, true);
        let of = functions.map(|(_, function, _)| function).into();
        let service = Simulated::new(MS, of, Noise::White(0.02), seed);
        let mut subject = Repeated { service, lasts: 3.0 * SECOND, started: vec![SECOND] };
        let measured = run(&mut subject, &options(), measured, &mut |_, _| {});
        let found = findings(&measured);
        let shown = || format!("{seed} {found:#?} {:#?}", measured.phases);
        let expected = [("render", Verdict::Matters), ("score", Verdict::DoesNotMatter)];
        assert_eq!(verdicts(&found), expected, "{}", shown());
        assert!(found.validity.holds && measured.load_changes.is_empty(), "{}", shown());
        assert!(subject.started.len() > 2, "{}", shown());
        assert!(measured.slices.iter().all(|slice| !slice.counts() || slice.units > 20.0), "{}", shown());
    }
}

/// A service that answers "busy" when it is slower does more units, and no more work.
#[test]
fn units_that_come_faster_with_delays_are_no_measure_of_work() {
    for seed in 0..3 {
        let functions = [("score", -0.5, 200), ("render", 1.0, 150)];
        let (found, measured) = swept(functions, Noise::White(0.02), seed, &[]);
        let shown = || format!("{found:#?} {:#?}", measured.phases);
        assert!(!found.validity.holds && measured.invalid.is_some(), "{}", shown());
        assert!(found.verdict.starts_with("No verdict: units took less time with delays of "), "{}", shown());
        assert!(found.factors.iter().all(|of| of.verdict == Verdict::Undecided), "{}", shown());
        // Nothing else reacts.
        let (found, measured) =
            swept([("score", -1.0, 200), ("render", 0.0, 150)], Noise::White(0.02), seed, &[]);
        assert!(measured.invalid.as_ref().unwrap().contains("delays of score than without"), "{found:#?}");
        assert!(measured.slices.iter().all(|slice| !slice.marks.contains(&Mark::Load)), "{found:#?}");
        assert!(found.factors.iter().all(|of| of.verdict == Verdict::Undecided), "{found:#?}");
    }
}
