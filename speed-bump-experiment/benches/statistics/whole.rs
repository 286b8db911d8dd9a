//! Whole sweeps of simulated services: the runner, the record, and what follows from it.

use std::{collections::BTreeMap, time::Duration};

use speed_bump_experiment::{
    analysis::{
        factor::Factor,
        findings::{Findings, findings},
        verdict::Verdict,
    },
    record::{Experiment, Measured},
    report::compare::compare,
    simulated::{self, Function, Noise},
};

use crate::{all, share_of};

/// Time per unit, in ns.
const UNIT: f64 = 1e6;
/// How long a sweep may take.
const TOTAL: Duration = Duration::from_secs(120);

/// A function of a simulated service, and its own time per unit in ns.
type Of = (Function, f64);

/// All tables.
pub(crate) fn tables(runs: u64) {
    println!("{runs} sweeps a line; a unit takes 1 ms, and a sweep may take two minutes\n");
    intervals(runs);
    wrong(runs);
    agreement(runs / 2);
    changes(runs / 2);
}

/// The kinds of noise, with deviations of slices of 200 ms.
fn noises() -> [(&'static str, Noise); 7] {
    [
        ("white, 3 %", Noise::White(0.03)),
        ("correlated, 3 %", Noise::Correlated(0.03)),
        ("drift, 20 % a minute", Noise::Drift(0.02, 0.2)),
        ("bursts, twice as long for 5 % of the time", Noise::Bursts(0.02)),
        ("two speeds", Noise::TwoSpeeds(0.03)),
        ("warm-up", Noise::WarmUp(0.02)),
        ("heavier and lighter requests, 5 %", Noise::Mix(0.01, 0.05)),
    ]
}

fn function(sensitivity: f64) -> Function {
    Function { calls: 5.0, sensitivity, slack: 0.0 }
}

/// This many functions that matter, and this many without effect.
fn service(matter: usize, nulls: usize) -> Vec<Of> {
    let ones = std::iter::repeat_n((function(1.0), 0.1 * UNIT), matter);
    ones.chain(std::iter::repeat_n((function(0.0), 0.03 * UNIT), nulls)).collect()
}

fn sweep(functions: &[Of], noise: Noise, seed: u64) -> Measured {
    let named = |(number, (function, own)): (usize, &Of)| (format!("f{number}"), *function, *own);
    let functions: Vec<_> = functions.iter().enumerate().map(named).collect();
    simulated::sweep(UNIT, &functions, noise, TOTAL, seed)
}

/// What is said of the functions that were asked about, by number.
fn single(found: &Findings) -> BTreeMap<usize, &Factor> {
    let number = |factor: &Factor| factor.name.strip_prefix('f')?.parse().ok();
    found.factors.iter().filter_map(|factor| Some((number(factor)?, factor))).collect()
}

fn intervals(runs: u64) {
    println!(
        "| noise | in the 95 % interval, %: sensitivity 1 | 0.4 | 0 | mean error: of 1 | of 0.4 | of 0 |\n\
         |---|---:|---:|---:|---:|---:|---:|"
    );
    let truths = [1.0, 0.4, 0.0];
    let functions = [0.3, 0.2, 0.2].map(|own| own * UNIT);
    let functions: Vec<Of> = truths.map(function).into_iter().zip(functions).collect();
    for (name, noise) in noises() {
        let found = all(runs, &|seed| {
            let found = findings(&sweep(&functions, noise, seed));
            let factors = single(&found);
            [0, 1, 2].map(|at| {
                let factor = factors.get(&at)?;
                let (low, high) = factor.low.zip(factor.high)?;
                Some((low <= truths[at] && truths[at] <= high, factor.sensitivity? - truths[at]))
            })
        });
        let of = |at: usize| found.iter().filter_map(move |of| of[at]);
        let held = |at: usize| share_of(&of(at).map(|(holds, _)| holds).collect::<Vec<_>>());
        let error = |at: usize| of(at).map(|(_, error)| error).sum::<f64>() / of(at).count().max(1) as f64;
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:+.3} | {:+.3} | {:+.3} |",
            held(0),
            held(1),
            held(2),
            error(0),
            error(1),
            error(2)
        );
    }
    println!();
}

fn wrong(runs: u64) {
    println!(
        "| noise | of 6 functions, in % of sweeps: the one is found | and all others are out | a wrong \
         \"matters\" | of 31: found | all others out | a wrong \"matters\" | of 8 without effect: a wrong \
         \"matters\" |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    );
    for (name, noise) in noises() {
        let numbers = |matter: usize, nulls: usize| {
            let service = service(matter, nulls);
            let found = all(runs, &|seed| {
                let found = findings(&sweep(&service, noise, seed));
                let factors = single(&found);
                let said = |verdict| factors.iter().filter(move |(_, of)| of.verdict == verdict);
                let matters = || said(Verdict::Matters).map(|(number, _)| *number);
                let found = matters().filter(|number| *number < matter).count() == matter;
                let out =
                    said(Verdict::DoesNotMatter).filter(|(number, _)| **number >= matter).count() == nulls;
                [found, out, matters().any(|number| number >= matter)]
            });
            [0, 1, 2].map(|at| share_of(&found.iter().map(|of| of[at]).collect::<Vec<_>>()))
        };
        let (few, many, none) = (numbers(1, 5), numbers(1, 30), numbers(0, 8));
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            few[0], few[1], few[2], many[0], many[1], many[2], none[2]
        );
    }
    println!();
}

fn agreement(runs: u64) {
    println!(
        "| slices differ by | equal verdicts, %: of 3 functions | contrary | of 31 | contrary |\n\
         |---|---:|---:|---:|---:|"
    );
    for deviation in [0.01, 0.02, 0.05, 0.1] {
        let numbers = |nulls: usize| {
            let service = service(1, nulls);
            let pairs = all(runs, &|seed| {
                let verdicts = |seed: u64| {
                    let found = findings(&sweep(&service, Noise::White(deviation), seed));
                    single(&found)
                        .into_iter()
                        .map(|(of, factor)| (of, factor.verdict))
                        .collect::<BTreeMap<_, _>>()
                };
                let (one, other) = (verdicts(2 * seed), verdicts(2 * seed + 1));
                let both = || one.iter().filter_map(|(of, verdict)| Some((*verdict, *other.get(of)?)));
                let decided = |of| matches!(of, Verdict::Matters | Verdict::DoesNotMatter);
                let contrary = both().filter(|(one, other)| one != other && decided(*one) && decided(*other));
                [both().count(), both().filter(|(one, other)| one == other).count(), contrary.count()]
            });
            let sum = |at: usize| pairs.iter().map(|of| of[at]).sum::<usize>() as f64;
            [1, 2].map(|at| 100.0 * sum(at) / sum(0).max(1.0))
        };
        let (few, many) = (numbers(2), numbers(30));
        let percent = deviation * 100.0;
        println!("| {percent:.0} % | {:.1} | {:.1} | {:.1} | {:.1} |", few[0], few[1], many[0], many[1]);
    }
    println!();
}

fn changes(runs: u64) {
    println!(
        "Between two sweeps, a sensitivity falls from 1 to 0.4\n\n\
         | noise | change in its interval, % | shown | one shown of a function without effect |\n\
         |---|---:|---:|---:|"
    );
    for (name, noise) in noises() {
        let found = all(runs, &|seed| {
            let of = |sensitivity: f64, seed: u64| {
                let functions = [(function(sensitivity), 0.3 * UNIT), (function(0.0), 0.2 * UNIT)];
                Experiment::new(sweep(&functions, noise, seed))
            };
            let found = compare(&of(1.0, 2 * seed), &of(0.4, 2 * seed + 1));
            let change = |name: &str| {
                found.functions.iter().find(|of| of.name == name).map(|of| of.sensitivity).unwrap()
            };
            let (falls, nothing) = (change("f0"), change("f1"));
            let holds = falls.low.zip(falls.high).is_some_and(|(low, high)| low <= -0.6 && -0.6 <= high);
            [holds, falls.is_shown(), nothing.is_shown()]
        });
        let of = |at: usize| share_of(&found.iter().map(|of| of[at]).collect::<Vec<_>>());
        println!("| {name} | {:.1} | {:.1} | {:.1} |", of(0), of(1), of(2));
    }
}
