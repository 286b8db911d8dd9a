//! The design alone, without the runner: how long it takes, and how often it is wrong.

use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use speed_bump_experiment::chips::{
    design::{Asked, Chip, Design, Verdict},
    sweep::{RULES, Swept, sweep},
    world::Pace,
};

use crate::{
    all, share_of,
    worlds::{Case, cases, recorded},
};

/// The cost of the design itself: the time of its estimates, as a share of the time of the chips.
pub(crate) fn estimates() {
    println!(
        "| functions | chips of 20 ms | estimates, % of the time | the longest estimate, s |\n\
         |---|---:|---:|---:|"
    );
    for (functions, chips) in [(5, 4_000), (20, 4_000), (200, 4_000), (500, 4_000), (1_000, 4_000)] {
        let asked = vec![Asked { share: Some(0.02), thread: 0, is_first: true }; functions];
        let mut design = Design::new(asked, RULES);
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..chips {
            let doses = design.draw(&mut random);
            let delivered = doses.iter().map(|(_, dose)| (*dose, *dose)).collect();
            // Where each chip takes another time, nothing is decided.
            let time = 1.0 + 10.0 * random.random::<f64>();
            let begun = Instant::now();
            if design.add(Chip { time, doses, delivered, follows: true, ..Chip::default() }) {
                sum += begun.elapsed();
                longest = longest.max(begun.elapsed());
            }
        }
        let share = 100.0 * sum.as_secs_f64() / (0.02 * f64::from(chips));
        println!("| {functions} | {chips} | {share:.1} | {:.2} |", longest.as_secs_f64());
    }
    println!();
}

/// A line for each service and pace of its machine.
pub(crate) fn table(runs: u64, only: Option<&str>) {
    println!(
        "| noise | matters, s | all, s | wrong \"matters\", % | wrong \"does not\", % | in the interval, % | \
         bias of what matters | of what does not | planned: of 99 %, most, mean | \
         felt: of 99 %, most, mean |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for case in
        cases().into_iter().chain(recorded()).filter(|case| only.is_none_or(|only| case.name.contains(only)))
    {
        let runs = (runs / case.one_in).max(4);
        println!("| **{}** ({runs} sweeps) | | | | | | | | | |", case.name);
        for &pace in case.paces() {
            let swept =
                all(runs, &|seed| sweep(case.service(pace, seed).as_mut(), &case.asked, case.plan, seed));
            line(&case, pace, &swept);
        }
    }
    println!();
}

fn line(case: &Case, pace: Pace, swept: &[Swept]) {
    let functions = 0..case.asked.len();
    let matter: Vec<usize> = functions.clone().filter(|at| case.matters(*at)).collect();
    let others: Vec<usize> = functions.clone().filter(|at| !case.matters(*at)).collect();
    let right = |at: usize| if case.matters(at) { Verdict::Matters } else { Verdict::DoesNot };
    let until = |swept: &Swept, of: &[usize]| {
        let at = |at: &usize| match swept.verdict(*at) {
            Some((verdict, seconds)) if verdict == right(*at) => seconds,
            _ => f64::INFINITY,
        };
        of.iter().map(at).fold(0.0, f64::max)
    };
    let wrong = |verdict: Verdict| {
        let is_wrong = |swept: &Swept| {
            let said = |at: usize| swept.verdict(at).is_some_and(|(said, _)| said == verdict);
            functions.clone().any(|at| said(at) && right(at) != verdict)
        };
        share_of(&swept.iter().map(is_wrong).collect::<Vec<_>>())
    };
    let held: Vec<bool> = swept
        .iter()
        .flat_map(|swept| functions.clone().filter_map(|at| swept.holds(at, case.truth[at])))
        .collect();
    let bias = |of: &[usize]| {
        let error = |swept: &Swept, at: usize| Some(swept.found[at].estimated?.sensitivity - case.truth[at]);
        let errors: Vec<f64> =
            swept.iter().flat_map(|swept| of.iter().filter_map(|at| error(swept, *at))).collect();
        if errors.is_empty() { "–".to_owned() } else { format!("{:+.3}", mean(errors.into_iter())) }
    };
    let seconds = |of: &[usize]| {
        if of.is_empty() {
            "–".to_owned()
        } else {
            quantiles(swept.iter().map(|swept| until(swept, of)), case)
        }
    };
    let slow_down = |of: fn(&Swept) -> (f64, f64)| {
        let mut most: Vec<f64> = swept.iter().map(|swept| of(swept).0).collect();
        most.sort_by(f64::total_cmp);
        let [almost, last] = [0.99, 1.0].map(|share| at(&most, share));
        format!("{almost:.2}, {last:.2}, {:.2}", mean(swept.iter().map(|swept| of(swept).1)))
    };
    println!(
        "| {} | {} | {} | {:.1} | {:.1} | {:.1} | {} | {} | {} | {} |",
        name(pace),
        seconds(&matter),
        seconds(&functions.clone().collect::<Vec<_>>()),
        wrong(Verdict::Matters),
        wrong(Verdict::DoesNot),
        share_of(&held),
        bias(&matter),
        bias(&others),
        slow_down(|swept| swept.planned),
        slow_down(|swept| swept.felt),
    );
}

fn name(pace: Pace) -> &'static str {
    match pace {
        Pace::Steady => "white",
        Pace::TwoSpeeds => "two speeds",
        Pace::Flicker => "flicker",
        Pace::Bursts => "bursts",
        Pace::Wander => "wanders",
        Pace::Drift => "drift",
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// The median and the 90 % quantile of times.
fn quantiles(times: impl Iterator<Item = f64>, case: &Case) -> String {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    let of = |share: f64| {
        let seconds = at(&times, share);
        if seconds.is_finite() { format!("{seconds:.0}") } else { format!("> {:.0}", case.plan.total) }
    };
    format!("{} / {}", of(0.5), of(0.9))
}

/// Of sorted values, the one that this share is below.
fn at(values: &[f64], share: f64) -> f64 {
    values[((values.len() as f64 * share) as usize).min(values.len() - 1)]
}
