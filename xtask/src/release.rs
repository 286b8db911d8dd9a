//! The release build of the loader: what the demo shows and the benches measure.

use std::{env, path::PathBuf};

use anyhow::{Result, bail};
use speed_bump_testing::places;

use crate::{root, shell};

/// Builds it, and returns the program. If we run as root for a user, who has built it, only returns it.
pub(crate) fn build() -> Result<PathBuf> {
    if let Some(tool) = env::var_os(root::TOOL_VARIABLE) {
        return Ok(tool.into());
    }
    eprintln!("building speed-bump-ebpf (release)");
    shell::run(shell::cargo().args([
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "speed-bump-user",
        "--bins",
    ]))?;
    let program = places::target().join("release/speed-bump-ebpf");
    if !program.is_file() {
        bail!("cargo built no {}: is a build target set in its configuration?", program.display());
    }
    Ok(program)
}
