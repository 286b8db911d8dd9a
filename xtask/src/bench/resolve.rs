//! `cargo xtask bench resolve`: from patterns to probe sites, at the sizes that we design for.

use std::{
    fs,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    big_library::{BigLibrary, FUNCTIONS},
    calibration_time, median_time, timed,
};

/// The most time that one glob over the library may take.
const BOUND: Duration = Duration::from_secs(1);
const RUNS: usize = 5;
/// Lines of the largest targets file.
const TARGETS: usize = 1_000;

/// Prints seconds; fails when the bound is missed.
pub(super) fn run(tool: &Path) -> Result<ExitCode> {
    let library = BigLibrary::mapped()?;
    let megabytes = fs::metadata(&library.path).context("the library is gone")?.len() / 1_000_000;
    let calibration = calibration_time(tool)?;
    println!("{FUNCTIONS} functions in {megabytes} MB; `list`, median of {RUNS} runs");
    println!("starting and calibrating, subtracted below: {:.3} s", calibration.as_secs_f64());

    let globs = [
        ("one glob, 1 function", "native:*/libbig.so:torch::autograd::function_04711*\n".to_owned(), true),
        ("one glob, 1,000 functions", "native:*/libbig.so:*::function_04*\n".to_owned(), true),
        ("one glob, all functions", "native:*/libbig.so:*\n".to_owned(), true),
        (
            "1,000 targets, a name each",
            targets(|number| format!("torch::autograd::function_{number:05}()")),
            false,
        ),
        ("1,000 targets, a glob each", targets(|number| format!("*function_0{number:03}?(*)")), false),
    ];
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = folder.path().join("targets.txt");
    let mut missed = false;
    for (what, text, is_promised) in globs {
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let took = median_time(RUNS, || {
            let mut command = Command::new(tool);
            command.args(["list", "--strict", "--pid", &library.service.pid().to_string(), "--targets"]);
            Ok(timed(command.arg(&file))?.1)
        })?;
        let took = took.saturating_sub(calibration);
        let verdict = match (is_promised, took < BOUND) {
            (true, true) => "kept: under 1 s",
            (true, false) => "MISSED: 1 s",
            (false, _) => "",
        };
        missed |= is_promised && took >= BOUND;
        println!("{what:<28} {:>8.3} s  {verdict}", took.as_secs_f64());
    }
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn targets(name: impl Fn(usize) -> String) -> String {
    (0..TARGETS).map(|number| format!("native:*/libbig.so:{}\n", name(number))).collect()
}
