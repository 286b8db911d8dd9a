//! `cargo xtask deny`: checks the crates of the workspace against deny.toml.
//!
//! Advisories are left out: their database is on GitHub, which not every machine that runs the checks can
//! reach.

use std::process::Command;

use anyhow::Result;
use speed_bump_testing::places;

use crate::{shell, tools::Tool};

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", says: "cargo-deny 0.20.2", features: &[] };

/// Runs the checks; fails at the first kind that finds something.
pub(crate) fn run() -> Result<()> {
    let checks = ["licenses", "bans", "sources"];
    let mut deny = Command::new(DENY.ensure()?);
    shell::run(deny.args(["--locked", "check"]).args(checks).current_dir(places::root()))
}
