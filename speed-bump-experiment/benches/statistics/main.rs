//! Checks the error rates of experiments: many of them on simulated services, whose true sensitivities are
//! known. `cargo xtask bench statistics`.
//!
//! First the design alone, on services of many kinds and machines of many paces: how long it takes until what
//! matters is found, and until all is decided; how often a verdict is wrong; whether intervals have the truth
//! in them; what is planned on a thread, and felt, in the chip that has most, as a share of a unit. Then
//! whole sweeps, with the runner and the findings:
//!
//! - *Intervals*: how often the 95 % interval of a sensitivity contains the truth, and its bias.
//! - *Wrong*: sweeps in which a function without effect is said to matter, or the other way round.
//! - *Agreement*: how many verdicts of two sweeps of the same service agree.
//! - *Changes*: how often the interval of a change between two sweeps contains the truth, and how often a
//!   change is shown although there is none.
//!
//! `SPEED_BUMP_RUNS` has the number of sweeps a line. `SPEED_BUMP_ONLY` has a part of the name of the
//! services that the design is tried on, or `whole sweeps`.

#![allow(missing_docs, clippy::unwrap_used)]

mod design;
mod recordings;
mod whole;
mod worlds;

use std::{env, thread};

fn main() {
    let runs = env::var("SPEED_BUMP_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(200);
    let only = env::var("SPEED_BUMP_ONLY").ok();
    design::table(runs, only.as_deref());
    if only.as_deref().is_none_or(|only| only == "whole sweeps") {
        whole::tables(runs);
        design::estimates();
    }
}

/// In %.
fn share_of(are: &[bool]) -> f64 {
    100.0 * are.iter().filter(|is| **is).count() as f64 / are.len().max(1) as f64
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
