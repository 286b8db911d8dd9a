//! `cargo xtask fuzz`: every fuzz target for a while, each from its seeds in `fuzz/seeds` and from what
//! earlier runs found.
//!
//! Needs a nightly Rust, for its sanitizers. cargo-fuzz is installed into `target/tools` where it is missing.
//! What a target prints is kept in `target/fuzz`; here it gets one line.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::places;

use crate::shell;

/// The version of cargo-fuzz that we install if this machine has none.
const CARGO_FUZZ: &str = "0.13.2";
/// Seconds after which a single input counts as a hang, and MiB after which it counts as a leak.
const INPUT_SECONDS: u32 = 20;
const MEMORY_MIB: u32 = 2048;
/// Longest inputs, in bytes, for targets where the usual 4,096 are too few or too slow.
const LENGTHS: [(&str, u32); 6] = [
    ("debug_files", 8192),
    ("elf_file", 8192),
    ("names", 512),
    ("python_elf", 8192),
    ("python_source", 1024),
    ("seccomp_filter", 1024),
];

#[derive(Args)]
pub(crate) struct Options {
    /// Which targets to run. Default: all.
    targets: Vec<String>,
    /// How long each runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many inputs each gets, instead of a time.
    #[arg(long, conflicts_with = "seconds")]
    runs: Option<u64>,
    /// `address` checks memory too; `none` finds panics and hangs, and is up to ten times as fast.
    #[arg(long, default_value = "address", value_parser = ["address", "none"])]
    sanitizer: String,
}

/// Runs the targets one after another. Fails when one crashed, hung, or took too much memory; the others
/// still run.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let all = targets()?;
    let chosen = if options.targets.is_empty() { &all } else { &options.targets };
    if let Some(unknown) = chosen.iter().find(|name| !all.contains(name)) {
        bail!("there is no fuzz target {unknown}: there are {}", all.join(", "));
    }
    let cargo = Cargo::ensure()?;
    shell::run(cargo.fuzz().args(["build", "--sanitizer", &options.sanitizer]))?;
    let logs = places::target().join("fuzz");
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let mut failed = 0;
    for name in chosen {
        let log = logs.join(format!("{name}.log"));
        let succeeded = cargo.run(name, options, &log)?;
        let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let said = String::from_utf8_lossy(&text);
        println!("{name:20} {}", summary(&said, succeeded, &log));
        failed += u32::from(!succeeded);
    }
    if failed > 0 {
        println!("{failed} of {} fuzz targets failed", chosen.len());
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The names of all targets: each is a file.
fn targets() -> Result<Vec<String>> {
    let folder = folder().join("fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| {
        let path = entry.path();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        is_source.then(|| path.file_stem()?.to_str().map(str::to_owned))?
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    Ok(names)
}

fn folder() -> PathBuf {
    places::root().join("fuzz")
}

/// A nightly cargo that knows `cargo fuzz`.
struct Cargo {
    nightly: String,
    path: OsString,
}

impl Cargo {
    fn ensure() -> Result<Self> {
        let tools = places::target().join("tools");
        let folder = tools.join("bin");
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder.clone()).chain(env::split_paths(&path));
        let path = env::join_paths(folders).context("PATH cannot be extended")?;
        let cargo = Self { nightly: nightly()?, path };
        if crate::system::find_program("cargo-fuzz").is_none() && !folder.join("cargo-fuzz").is_file() {
            eprintln!(
                "installing cargo-fuzz {CARGO_FUZZ} into {}; this takes a minute, once",
                tools.display()
            );
            shell::run(
                shell::cargo()
                    .args(["install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked", "--root"])
                    .arg(&tools)
                    .env("CARGO_TARGET_DIR", tools.join("build")),
            )?;
        }
        Ok(cargo)
    }

    /// `cargo fuzz`, in the root of the working tree.
    fn fuzz(&self) -> Command {
        let mut command = Command::new("rustup");
        command
            .args(["run", &self.nightly, "cargo", "fuzz"])
            .current_dir(places::root())
            .env("PATH", &self.path)
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO");
        command
    }

    /// Runs one target, with its output in a file. Returns whether it found nothing.
    fn run(&self, name: &str, options: &Options, log: &Path) -> Result<bool> {
        let corpus = folder().join("corpus").join(name);
        fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
        let seeds = folder().join("seeds").join(name);
        let length = LENGTHS.iter().find(|(target, _)| *target == name).map_or(4096, |(_, length)| *length);
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = self.fuzz();
        command
            .args(["run", "--sanitizer", &options.sanitizer, name])
            .arg(corpus)
            .args(Some(seeds).filter(|seeds| seeds.is_dir()));
        command.arg("--").arg(match options.runs {
            Some(runs) => format!("-runs={runs}"),
            None => format!("-max_total_time={}", options.seconds),
        });
        command
            .arg(format!("-max_len={length}"))
            .arg(format!("-timeout={INPUT_SECONDS}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg("-print_final_stats=1")
            .stdin(Stdio::null())
            .stderr(out.try_clone().context("cannot duplicate a descriptor")?)
            .stdout(out);
        let status = command.status().context("cannot run cargo fuzz")?;
        Ok(status.success())
    }
}

/// The name of an installed nightly.
fn nightly() -> Result<String> {
    let list = shell::output(Command::new("rustup").args(["toolchain", "list", "--quiet"]))
        .context("fuzzing needs rustup, to run a nightly Rust beside the stable one: see rustup.rs")?;
    let found = list.lines().map(str::trim).find(|name| name.starts_with("nightly"));
    found.map(str::to_owned).context("fuzzing needs a nightly Rust: rustup toolchain install nightly")
}

/// One line about a run, of what libFuzzer printed.
fn summary(said: &str, succeeded: bool, log: &Path) -> String {
    let number = |key: &str| {
        let value = said.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(key));
        value.map(|value| value.trim_start_matches(':').trim().to_owned())
    };
    let runs = number("number_of_executed_units").unwrap_or_else(|| "unknown".to_owned());
    if succeeded {
        let [speed, memory] =
            ["average_exec_per_sec", "peak_rss_mb"].map(|key| number(key).unwrap_or_default());
        return format!("{runs} runs, {speed} a second, {memory} MiB at most");
    }
    let input = said.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, path)| path));
    let what = input.map_or_else(|| "no input was kept".to_owned(), |input| format!("the input: {input}"));
    format!("FAILED after {runs} runs; {what}; what was said: {}", log.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_run_is_summed_up_in_a_line() {
        let said = "INFO: seed corpus\n#10 DONE cov: 3\nstat::number_of_executed_units: 1000\n\
                    stat::average_exec_per_sec:     250\nstat::peak_rss_mb:              41\n";
        let line = summary(said, true, Path::new("/l"));
        assert_eq!(line, "1000 runs, 250 a second, 41 MiB at most");
        let said =
            "stat::number_of_executed_units: 7\nartifact_prefix='/a/'; Test unit written to /a/crash-1\n";
        let line = summary(said, false, Path::new("/l"));
        assert_eq!(line, "FAILED after 7 runs; the input: /a/crash-1; what was said: /l");
        assert!(summary("error: no such target", false, Path::new("/l")).contains("no input was kept"));
    }

    #[test]
    fn every_target_is_built() {
        let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
        for name in targets().unwrap() {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        }
        for (name, _) in LENGTHS {
            assert!(targets().unwrap().contains(&name.to_owned()), "{name}");
        }
    }
}
