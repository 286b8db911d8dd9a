//! `cargo xtask deny`: what deny.toml says of the crates that the workspace uses.
//!
//! Advisories are left out: their database is on GitHub, which not every machine that runs the checks can
//! reach.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};
use speed_bump_testing::places;

use crate::{shell, system};

/// cargo-deny: another version may find something else.
const VERSION: &str = "0.20.2";

/// Checks; fails on the first kind of check that finds something.
pub(crate) fn run() -> Result<()> {
    let checks = ["licenses", "bans", "sources"];
    shell::run(Command::new(ensure()?).args(["--locked", "check"]).args(checks).current_dir(places::root()))
}

/// The pinned cargo-deny: one on `PATH`, or our own, which is built where there is none.
fn ensure() -> Result<PathBuf> {
    let root = places::target().join("tools").join(format!("cargo-deny-{VERSION}"));
    let own = root.join("bin/cargo-deny");
    let on_path = system::find_program("cargo-deny");
    if let Some(found) = [Some(own.clone()), on_path].into_iter().flatten().find(|path| is_pinned(path)) {
        return Ok(found);
    }
    eprintln!("building cargo-deny {VERSION}; this takes two minutes or more, once");
    shell::run(
        shell::cargo()
            // Without optimisation it is built in a third of the time, and checks within seconds.
            .args(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug", "--root"])
            .arg(&root)
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    )?;
    match is_pinned(&own) {
        true => Ok(own),
        false => bail!("{} is not cargo-deny {VERSION}", own.display()),
    }
}

fn is_pinned(program: &Path) -> bool {
    shell::output(Command::new(program).arg("--version"))
        .is_ok_and(|said| said.trim() == format!("cargo-deny {VERSION}"))
}
