//! Checks the error rates of experiments: many of them on simulated services, whose true sensitivities are
//! known. `cargo xtask bench statistics`.
//!
//! - *Coverage*: how often the 95 % interval of a sensitivity contains the truth, by the number of blocks.
//! - *Bias*: the mean estimate for a function without effect.
//! - *False alarms*: sweeps in which a function without effect is found to matter, over all interim analyses.
//! - *Power*: how often a function that matters is found to, by noise and number of other functions.
//! - *Agreement*: how many verdicts of two sweeps of the same service agree.
//! - *Changes*: how often the interval of a change between two sweeps contains the truth, and how often a
//!   change is shown although there is none.
//! - *A thousand*: how often exactly the three of 1,000 functions that matter are found.

#![allow(missing_docs, clippy::unwrap_used)]

use std::{collections::BTreeMap, env, thread, time::Duration};

use speed_bump_experiment::{
    analysis::{
        contrast::contrasts,
        estimate::estimate,
        findings::{Findings, findings},
        verdict::Verdict,
    },
    record::{By, Experiment, Measured, PhaseKind, Treatment},
    report::compare::compare,
    simulated::{self, Function, Noise},
};

/// Time per unit, in ns.
const UNIT: f64 = 1e6;
/// The numbers of blocks for which coverage is computed.
const BLOCKS: [u32; 4] = [8, 16, 32, u32::MAX];

/// A function of a simulated service, and its own time per unit in ns.
type Of = (Function, f64);

fn main() {
    let runs = env::var("SPEED_BUMP_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1_000);
    println!("{runs} runs a case; a unit takes 1 ms, and a sweep two minutes\n");
    coverage(runs);
    false_alarms(runs);
    power(runs);
    agreement(runs / 4);
    changes(runs / 2);
    thousand(runs / 10);
}

/// The kinds of noise, with deviations of slices of 200 ms.
fn noises() -> [(&'static str, Noise); 7] {
    [
        ("white 3 %", Noise::White(0.03)),
        ("correlated 3 %", Noise::Correlated(0.03)),
        ("drift 20 % a minute", Noise::Drift(0.02, 0.2)),
        ("bursts", Noise::Bursts(0.02)),
        ("two speeds", Noise::TwoSpeeds(0.03)),
        ("warm-up", Noise::WarmUp(0.02)),
        ("mix of requests", Noise::Mix(0.01, 0.05)),
    ]
}

fn function(sensitivity: f64, slack: f64) -> Function {
    Function { calls: 5.0, sensitivity, slack }
}

fn coverage(runs: u64) {
    println!("Coverage of the 95 % interval, in %, by blocks; and the mean of a function without effect");
    println!("{:<22}{:>8}{:>8}{:>8}{:>8}{:>10}", "noise", 8, 16, 32, "all", "null");
    let functions = [
        (function(1.0, 0.0), 0.3 * UNIT),
        (function(0.4, 0.0), 0.2 * UNIT),
        (function(0.0, 0.0), 0.2 * UNIT),
    ];
    for (name, noise) in noises() {
        let found = all(runs, &|seed| {
            let measured = sweep(&functions, noise, seed);
            let of = |number: u32| {
                let function = Treatment::Function { candidate: number };
                let truth = functions[number as usize].0.sensitivity;
                let held = BLOCKS.map(|until| {
                    let of =
                        contrasts(measured.of_phase(PhaseKind::Confirm), function, until, By::Throughput);
                    let enough = until == u32::MAX || of.len() >= until as usize;
                    let found = estimate(&of, 0.95).filter(|_| enough)?;
                    Some(found.low <= truth && truth <= found.high)
                });
                let all =
                    contrasts(measured.of_phase(PhaseKind::Confirm), function, u32::MAX, By::Throughput);
                (held, estimate(&all, 0.95).map(|found| found.sensitivity))
            };
            [of(0), of(1), of(2)]
        });
        let share = |place: usize| {
            let held: Vec<bool> = found.iter().flatten().filter_map(|(held, _)| held[place]).collect();
            share_of(&held)
        };
        let nulls: Vec<f64> = found.iter().filter_map(|of| of[2].1).collect();
        let count = nulls.len().max(1) as f64;
        let null = nulls.iter().sum::<f64>() / count;
        let spread = (nulls.iter().map(|of| (of - null).powi(2)).sum::<f64>() / count).sqrt();
        println!(
            "{name:<22}{:>8.1}{:>8.1}{:>8.1}{:>8.1}{null:>10.3} ±{:.3}",
            share(0),
            share(1),
            share(2),
            share(3),
            spread / count.sqrt()
        );
    }
    println!();
}

fn false_alarms(runs: u64) {
    println!("Sweeps in which a function without effect is found to matter, in %");
    println!("{:<22}{:>16}{:>16}{:>16}", "noise", "1 + 5 nulls", "1 + 30 nulls", "all nulls");
    let services = [service(1, 5), service(1, 30), service(0, 8)];
    for (name, noise) in noises() {
        let share = |service: &Vec<Of>, matter: usize| {
            let wrong = all(runs, &|seed| {
                let found = findings(&sweep(service, noise, seed));
                said_to_matter(&found).any(|number| number >= matter)
            });
            share_of(&wrong)
        };
        let [few, many, none] = [share(&services[0], 1), share(&services[1], 1), share(&services[2], 0)];
        println!("{name:<22}{few:>16.1}{many:>16.1}{none:>16.1}");
    }
    println!();
}

/// This many functions that matter, and this many without effect.
fn service(matter: usize, nulls: usize) -> Vec<Of> {
    let ones = std::iter::repeat_n((function(1.0, 0.0), 0.1 * UNIT), matter);
    ones.chain(std::iter::repeat_n((function(0.0, 0.0), 0.03 * UNIT), nulls)).collect()
}

fn power(runs: u64) {
    println!(
        "A function of sensitivity 1 that is worth 10 % is found to matter, and the others not to, in %"
    );
    println!("{:<12}{:>14}{:>14}{:>14}{:>14}", "noise", "of 3", "", "of 31", "");
    println!("{:<12}{:>14}{:>14}{:>14}{:>14}", "", "matters", "do not", "matters", "do not");
    by_noise(|service, deviation| {
        let found = all(runs / 4, &|seed| {
            let found = findings(&sweep(service, Noise::White(deviation), seed));
            let right = said_to_matter(&found).any(|number| number == 0);
            let nulls = found.factors.iter().filter(|factor| factor.name != "f0" && factor.file.is_some());
            let not = nulls.filter(|factor| factor.verdict == Verdict::DoesNotMatter).count();
            (right, not as f64 / (service.len() - 1) as f64)
        });
        let count = found.len() as f64;
        let right = found.iter().filter(|(right, _)| *right).count() as f64 / count;
        let not = found.iter().map(|(_, not)| not).sum::<f64>() / count;
        (100.0 * right, 100.0 * not)
    });
}

fn agreement(runs: u64) {
    println!(
        "
Verdicts of two sweeps of the same service: equal, and contrary, in %"
    );
    println!("{:<12}{:>14}{:>14}{:>14}{:>14}", "noise", "of 3", "contrary", "of 31", "contrary");
    by_noise(|service, deviation| {
        let pairs = all(runs, &|seed| {
            let verdicts = |seed: u64| {
                let found = findings(&sweep(service, Noise::White(deviation), seed));
                let single = found.factors.into_iter().filter(|factor| factor.file.is_some());
                let verdicts = single.map(|factor| (factor.name, factor.verdict));
                verdicts.collect::<BTreeMap<String, Verdict>>()
            };
            let (one, other) = (verdicts(2 * seed), verdicts(2 * seed + 1));
            let both = || one.iter().filter_map(|(name, of)| Some((*of, *other.get(name)?)));
            let same = both().filter(|(one, other)| one == other).count();
            let decided = |of| matches!(of, Verdict::Matters | Verdict::DoesNotMatter);
            let contrary = both().filter(|(one, other)| one != other && decided(*one) && decided(*other));
            (both().count(), same, contrary.count())
        });
        let sum = |of: fn(&(usize, usize, usize)) -> usize| pairs.iter().map(of).sum::<usize>() as f64;
        let verdicts = sum(|of| of.0).max(1.0);
        (100.0 * sum(|of| of.1) / verdicts, 100.0 * sum(|of| of.2) / verdicts)
    });
}

fn changes(runs: u64) {
    println!(
        "\nTwo sweeps, between which a sensitivity falls from 1 to 0.4: its change is in its interval, and \
         is shown; one is shown of a function that does nothing, in %"
    );
    println!("{:<22}{:>12}{:>12}{:>12}", "noise", "holds", "shown", "of nothing");
    for (name, noise) in noises() {
        let found = all(runs, &|seed| {
            let of = |sensitivity: f64, seed: u64| {
                let functions = [(function(sensitivity, 0.0), 0.3 * UNIT), (function(0.0, 0.0), 0.2 * UNIT)];
                Experiment::new(sweep(&functions, noise, seed))
            };
            let found = compare(&of(1.0, 2 * seed), &of(0.4, 2 * seed + 1));
            let change = |name: &str| {
                found.functions.iter().find(|of| of.name == name).map(|of| of.sensitivity).unwrap()
            };
            let (falls, nothing) = (change("f0"), change("f1"));
            let holds = falls.low.zip(falls.high).is_some_and(|(low, high)| low <= -0.6 && -0.6 <= high);
            (holds, falls.is_shown(), nothing.is_shown())
        });
        let share = |of: fn(&(bool, bool, bool)) -> bool| share_of(&found.iter().map(of).collect::<Vec<_>>());
        println!("{name:<22}{:>12.1}{:>12.1}{:>12.1}", share(|of| of.0), share(|of| of.1), share(|of| of.2));
    }
}

fn thousand(runs: u64) {
    println!(
        "
Sweeps that find exactly the three of 1,000 functions that matter, in %"
    );
    // Each takes enough time that none is dismissed, as in parallel threads.
    let matters = |number: usize| f64::from(u8::from([7, 500, 900].contains(&number)));
    let service: Vec<Of> = (0..1_000).map(|number| (function(matters(number), 0.0), 0.02 * UNIT)).collect();
    for (name, noise) in noises() {
        let right = all(runs, &|seed| {
            let found = findings(&sweep(&service, noise, seed));
            let mut said: Vec<usize> = said_to_matter(&found).collect();
            said.sort_unstable();
            said == [7, 500, 900]
        });
        println!("{name:<22}{:>8.1}", share_of(&right));
    }
}

/// A line for each amount of noise, with two numbers of a service with 3 functions and of one with 31.
fn by_noise(numbers: impl Fn(&[Of], f64) -> (f64, f64)) {
    for deviation in [0.01, 0.02, 0.05, 0.1] {
        let (few, few_not) = numbers(&service(1, 2), deviation);
        let (many, many_not) = numbers(&service(1, 30), deviation);
        let noise = format!("{:.0} %", deviation * 100.0);
        println!("{noise:<12}{few:>14.1}{few_not:>14.1}{many:>14.1}{many_not:>14.1}");
    }
}

/// In %.
fn share_of(are: &[bool]) -> f64 {
    100.0 * are.iter().filter(|is| **is).count() as f64 / are.len().max(1) as f64
}

fn said_to_matter(found: &Findings) -> impl Iterator<Item = usize> {
    let matter = found.factors.iter().filter(|factor| factor.verdict == Verdict::Matters);
    matter.filter_map(|factor| factor.name.strip_prefix('f')?.parse().ok())
}

/// The results of all runs, on several threads.
fn all<T: Send>(runs: u64, of: &(impl Fn(u64) -> T + Sync)) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                scope.spawn(move || (part..runs).step_by(threads as usize).map(of).collect::<Vec<T>>())
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

/// A sweep of two minutes.
fn sweep(functions: &[Of], noise: Noise, seed: u64) -> Measured {
    let named = |(number, (function, own)): (usize, &Of)| (format!("f{number}"), *function, *own);
    let functions: Vec<_> = functions.iter().enumerate().map(named).collect();
    simulated::sweep(UNIT, &functions, noise, Duration::from_secs(120), seed)
}
