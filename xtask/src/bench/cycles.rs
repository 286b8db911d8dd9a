//! `cargo xtask bench cycles`: attaching and detaching by the number of probe sites, and the cost of a hit.

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use speed_bump_testing::session::Attached;

use super::{big_library::BigLibrary, nanos, timed};

/// Globs that select this many functions of the library.
const SELECTIONS: [(usize, &str); 4] = [
    (1, "*::function_00000*"),
    (100, "*::function_000*"),
    (1_000, "*::function_00*"),
    (10_000, "*::function_0*"),
];
const CYCLES: usize = 5;
/// How long a session lasts: long enough that it has a target and gives a report.
const STAY: Duration = Duration::from_millis(50);

/// Prints both tables.
pub(super) fn run(tool: &Path) -> Result<()> {
    let library = BigLibrary::mapped()?;
    println!("medians of {CYCLES} cycles, as the tool measures them (-v)");
    println!("{:>8} {:>14} {:>14} {:>26}", "sites", "attach", "detach", "from its start to attached");
    for (sites, pattern) in SELECTIONS {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..CYCLES {
            let cycle = cycle(tool, &library, sites, pattern)?;
            for (times, time) in times.iter_mut().zip(cycle) {
                times.push(time);
            }
        }
        let [attach, detach, start] = times.map(|mut times| {
            times.sort_unstable();
            let median: Duration = times.get(times.len() / 2).copied().unwrap_or_default();
            format!("{:.1} ms", median.as_secs_f64() * 1000.0)
        });
        println!("{sites:>8} {attach:>14} {detach:>14} {start:>26}");
    }
    println!();
    print!("{}", timed(Command::new(tool).arg("calibrate"))?.0);
    Ok(())
}

/// Attaches and detaches once: time to attach, to detach, and from the tool's start until it is attached.
fn cycle(tool: &Path, library: &BigLibrary, sites: usize, pattern: &str) -> Result<[Duration; 3]> {
    let targets = format!("native:*/libbig.so:{pattern}\n");
    let began = Instant::now();
    let attached = Attached::start_tool(tool, library.service.pid(), &targets, &["--strict", "-v"], |_| ())?;
    let started = began.elapsed();
    thread::sleep(STAY);
    let said = attached.stop()?.run.stderr;
    let time = |before: &str| {
        let rest = said.lines().find_map(|line| line.split_once(before)).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.rsplit_once("in "))
            .and_then(|(_, time)| nanos(time))
            .map(Duration::from_nanos)
    };
    let attach = time(&format!(" attached {sites} probe sites"));
    let times = attach.zip(time(" detached "));
    let (attach, detach) = times.with_context(|| format!("no times for {sites} sites in\n{said}"))?;
    Ok([attach, detach, started])
}
