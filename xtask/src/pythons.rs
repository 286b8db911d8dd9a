//! `cargo xtask pythons`: fetches the Pythons of newer Debians and of an older one, for tests.
//!
//! An apt of our own fetches them (`debian`), and we unpack each with all its libraries, the C library too,
//! into a folder (`unpack`). On request we build those from source that Debian does not package (`source`).
//! Nothing outside target/ is touched. `speed_bump_testing::pythons` finds out by running them what they can
//! do.

mod source;
mod unpack;

use std::{
    fs::{self, File},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::{places, pythons};

use crate::debian::Archive;

/// Suites that are read together. Others have a folder of their own: a suite that leaves the mirror, as old
/// ones do, then does not affect the others, and libraries come from the Python's own suite.
struct Suites {
    /// The folder in target/pythons.
    folder: &'static str,
    names: &'static [&'static str],
}

/// The suites with newer Pythons, the most stable first. apt takes the newest version that it finds;
/// experimental counts only for versions that no other suite has.
const NEWER: Suites = Suites { folder: "apt", names: &["trixie", "forky", "sid", "experimental"] };

/// Debian 11: the last with a glibc of several libraries (2.31).
const OLDER: Suites = Suites { folder: "apt-bullseye", names: &["bullseye"] };

/// The versions for tests: those with perf trampolines, 3.15 with USDT, and Debian 11's for its C library.
const VERSIONS: [&str; 4] = [OLD, "3.13", "3.14", "3.15"];

/// The version that Debian 11 has.
const OLD: &str = "3.9";

/// Files that packages from PyPI expect on every system, and that Debian's Python does not need.
const ALSO: &str = "libstdc++6";

#[derive(Args)]
pub(crate) struct Options {
    /// Look for newer packages, even of versions that are there.
    #[arg(long)]
    update: bool,
    /// Build what Debian has as source only: a free-threaded Python. Takes minutes, and a compiler.
    #[arg(long)]
    build: bool,
    /// The versions to fetch.
    #[arg(default_values = VERSIONS)]
    versions: Vec<String>,
}

/// Fetches what is missing, then lists all interpreters of this machine.
pub(crate) fn run(options: &Options) -> Result<()> {
    let versions: Vec<_> = options.versions.iter().map(String::as_str).collect();
    let mut result = fetch(&versions, options.update);
    if options.build {
        result = result.and(build(options.update));
    }
    println!("{:<40} {:>14} {:>11} {:>13} {:>5}", "", "usdt function", "trampolines", "free-threaded", "jit");
    for python in pythons::find()? {
        let yes = |is| if is { "yes" } else { "no" };
        println!(
            "{:<40} {:>14} {:>11} {:>13} {:>5}",
            python.to_string(),
            match (python.has_usdt, python.usdt_fires()) {
                (true, false) => "there, silent",
                (has, _) => yes(has),
            },
            yes(python.trampolines),
            yes(python.free_threaded),
            yes(python.has_jit),
        );
    }
    result
}

/// Makes sure that the Pythons for tests are there. Without the network, those that are there must do.
pub(crate) fn ensure() -> Result<()> {
    fetch(&VERSIONS, false)
}

/// Builds those that are not packaged, unless they are there; with `update` in any case.
fn build(update: bool) -> Result<()> {
    let folder = places::fetched_pythons();
    let _lock = lock(&folder)?;
    let mut failures = Vec::new();
    for build in &source::BUILDS {
        if update || !source::is_complete(&folder, build) {
            let built = open(&folder, &NEWER).and_then(|apt| source::build(&folder, build, &apt));
            failures.extend(built.err().map(|error| format!("Python {}: {error:#}", build.name)));
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn open(folder: &Path, suites: &Suites) -> Result<Archive> {
    Archive::open(&folder.join(suites.folder), suites.names)
}

/// Only one process may do this at a time: two would unpack into the same folders. Closing the file releases
/// the lock.
fn lock(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("cannot make the lock file")?;
    lock.lock().context("cannot take the lock")?;
    Ok(lock)
}

/// Fetches these versions, unless they are there; with `update` in any case.
pub(crate) fn fetch(versions: &[&str], update: bool) -> Result<()> {
    let folder = places::fetched_pythons();
    let _lock = lock(&folder)?;
    let is_wanted = |version: &str| update || !unpack::is_complete(&folder.join(version), ALSO);
    let wanted = versions.iter().copied().filter(|version| is_wanted(version));
    let (old, new): (Vec<_>, Vec<_>) = wanted.partition(|version| *version == OLD);
    // If one version is missing, we still fetch the others.
    let mut failures = Vec::new();
    for (suites, versions) in [(&NEWER, new), (&OLDER, old)] {
        if versions.is_empty() {
            continue;
        }
        match open(&folder, suites) {
            Ok(archive) => failures.extend(versions.into_iter().filter_map(|version| {
                let error = fetch_from(&archive, &folder, version).err()?;
                Some(format!("Python {version}: {error:#}"))
            })),
            Err(error) => failures.push(format!("Python {}: {error:#}", versions.join(", "))),
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn fetch_from(archive: &Archive, folder: &Path, version: &str) -> Result<()> {
    match archive.download(&[&format!("python{version}"), ALSO])? {
        Some(packages) => unpack::unpack(folder, version, &packages),
        None => bail!("Debian has none at present"),
    }
}
