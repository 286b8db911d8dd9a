//! Measures how long reports take to make, and how large they are. `cargo xtask bench reports`.
//!
//! A sweep of a service with ten functions and some 200 slices, one with 1,000 functions, and a session in
//! which the calls of 1,000 functions were timed, each with three callers. Each is read from its JSON first,
//! as `report` does. Medians of 21.

#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use speed_bump_experiment::{
    record::{Experiment, Measured},
    report::{
        csv, html, markdown,
        profile::{Edges, Printing, Profile, print, print_edges, pstats},
        session::RecordedSession,
        text,
    },
    simulated::{Function, Noise, sweep},
};

/// Time per unit, in ns.
const UNIT: f64 = 1e6;

fn main() {
    println!("{:<44} {:>10} {:>10} {:>10}", "", "slices", "ms", "kB");
    sweeps("a sweep, 10 functions", 10, 0.05, Duration::from_secs(60));
    sweeps("a sweep, 1,000 functions", 1_000, 0.02, Duration::from_secs(120));
    session(1_000);
}

/// The formats of a sweep. Each function takes this share of a unit, and each 100th matters.
fn sweeps(what: &str, functions: usize, share: f64, total: Duration) {
    let function = |number: usize| {
        let sensitivity = f64::from(u8::from(number % 100 == 7));
        let name = format!("package.module_{}.Class.method_{number}", number % 37);
        (name, Function { calls: 1.0, sensitivity, slack: 0.0 }, share * UNIT)
    };
    let functions: Vec<_> = (0..functions).map(function).collect();
    let measured = sweep(UNIT, &functions, Noise::White(0.02), total, 7);
    let slices = measured.slices.len();
    let recorded = serde_json::to_string(&measured).unwrap();
    let row = |form: &str, of: &dyn Fn(&Experiment) -> usize| {
        let (took, length) = timed(|| {
            let measured: Measured = serde_json::from_str(&recorded).unwrap();
            of(&Experiment::new(measured))
        });
        println!("{:<44} {slices:>10} {took:>10.1} {length:>10.1}", format!("{what}: {form}"));
    };
    row("page", &|of| html::render(of).len());
    row("text", &|of| text::render(of, text::Style::PLAIN).len());
    row("Markdown", &|of| markdown::render(of).len());
    row("CSV", &|of| csv::render(of).len());
}

/// The formats of a session's profile.
fn session(functions: usize) {
    let function = |number: usize| {
        let callers = (1..4).map(|step| {
            json!({"name": format!("method_{}", (number + 7 * step) % functions), "file": "/srv/app.py",
                   "line": (number + 7 * step) % functions, "calls": 10, "primitive_calls": 10,
                   "own_ns": 5_000, "cumulative_ns": 9_000})
        });
        json!({"name": format!("method_{number}"), "file": "/srv/app.py", "line": number, "calls": 30,
               "own_ns": 15_000, "cumulative_ns": 27_000, "primitive_calls": 30, "resumed": 0,
               "primitive_resumed": 0, "callers": callers.collect::<Vec<_>>()})
    };
    let functions: Vec<Value> = (0..functions).map(function).collect();
    let recorded = json!({"duration_ns": 1, "targets": [{"kind": "py", "functions": functions}]}).to_string();
    let row = |form: &str, of: &dyn Fn(&Profile) -> usize| {
        let (took, length) = timed(|| {
            let session: RecordedSession = serde_json::from_str(&recorded).unwrap();
            of(&Profile::from_session(&session).unwrap())
        });
        println!(
            "{:<44} {:>10} {took:>10.1} {length:>10.1}",
            format!("a session, 1,000 functions: {form}"),
            ""
        );
    };
    row("table", &|of| print(of, &Printing::default()).len());
    row("callers", &|of| print_edges(of, Edges::Callers, &Printing::default(), usize::MAX).len());
    row("pstats", &|of| pstats(of).len());
}

/// How long it takes, in ms, and what it returns, in thousands.
fn timed(of: impl Fn() -> usize) -> (f64, f64) {
    let mut times = Vec::new();
    let mut length = 0;
    for _ in 0..21 {
        let began = Instant::now();
        length = of();
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], length as f64 / 1e3)
}
