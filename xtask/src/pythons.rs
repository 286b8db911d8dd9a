//! `cargo xtask pythons`: the Pythons of newer Debians and of an older one, for tests on a machine that has
//! another.
//!
//! They come through an apt of their own (`debian`) and are unpacked with all libraries, the C library too,
//! into a folder each (`unpack`). What Debian does not package is built from its sources, if that is asked
//! for (`source`). Nothing outside target/ is touched. What they can do is found out by running them:
//! `speed_bump_testing::pythons`.

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
/// ones do one day, takes nothing else with it, and libraries come from where the Python comes from.
struct Suites {
    /// The folder in target/pythons.
    folder: &'static str,
    names: &'static [&'static str],
}

/// Where newer Pythons are, the steadiest first. apt takes the newest version that it finds; experimental
/// only counts for what is nowhere else.
const NEWER: Suites = Suites { folder: "apt", names: &["trixie", "forky", "sid", "experimental"] };

/// Debian 11: the last with a glibc of several libraries (2.31).
const OLDER: Suites = Suites { folder: "apt-bullseye", names: &["bullseye"] };

/// The versions that tests want: those with perf trampolines, 3.15 with USDT, and Debian 11's with its C
/// library.
const VERSIONS: [&str; 4] = [OLD, "3.13", "3.14", "3.15"];

/// The version that Debian 11 has.
const OLD: &str = "3.9";

/// What packages from PyPI expect of every system, and Debian's Python does without.
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

/// Makes sure that the Pythons that tests want are there. Without the network, those that are there will do.
pub(crate) fn ensure() -> Result<()> {
    fetch(&VERSIONS, false)
}

/// Builds what can only be had that way, unless it is there; with `update` in any case.
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

/// One at a time: two would unpack into the same folders. Released when the file is closed.
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
    // One that cannot be had is no reason to do without the others.
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
