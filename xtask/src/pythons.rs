//! `cargo xtask pythons`: Debian's newer Pythons, for tests on a machine whose own Debian is older.
//!
//! They come through an apt of their own (`debian`) and are unpacked with all libraries, the C library too, into
//! a folder each (`unpack`). What Debian does not package is built from its sources, if that is asked for (`source`).
//! Nothing outside target/ is touched. What they can do is found out by running them: `speed_bump_testing::pythons`.

mod source;
mod unpack;

use std::{
    fs::{self, File},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::{places, pythons::pythons};

use crate::debian::Archive;

/// Where newer Pythons are, the steadiest first. apt takes the newest version that it finds; experimental only
/// counts for what is nowhere else.
const SUITES: [&str; 4] = ["trixie", "forky", "sid", "experimental"];

/// The versions that tests want: those with perf trampolines, and 3.15 with USDT.
const VERSIONS: [&str; 3] = ["3.13", "3.14", "3.15"];

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
    for python in pythons() {
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
            let built = Archive::open(&folder.join("apt"), &SUITES)
                .and_then(|apt| source::build(&folder, build, &apt));
            failures.extend(built.err().map(|error| format!("Python {}: {error:#}", build.name)));
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
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
    let is_wanted = |version: &&&str| update || !unpack::is_complete(&folder.join(version), ALSO);
    let wanted: Vec<_> = versions.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let archive = Archive::open(&folder.join("apt"), &SUITES)?;
    // One that cannot be had is no reason to do without the others.
    let mut failures = Vec::new();
    for version in wanted {
        let fetched =
            archive.download(&[&format!("python{version}"), ALSO]).and_then(|packages| match packages {
                Some(packages) => unpack::unpack(&folder, version, &packages),
                None => bail!("Debian has none at present"),
            });
        if let Err(error) = fetched {
            failures.push(format!("Python {version}: {error:#}"));
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}
