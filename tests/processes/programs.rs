//! The programs that these tests inspect.

#![allow(clippy::expect_used, reason = "fails the test")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles one of the programs in the folder of this file's name.
pub(crate) fn compile(source: &str, directory: &Path, flags: &[&str]) -> PathBuf {
    let program = directory.join(source.trim_end_matches(".c"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("processes/programs").join(source);
    let output = Command::new("gcc")
        .args(["-O1", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(source)
        .output()
        .expect("gcc is installed (`cargo xtask test` does that)");
    assert!(output.status.success(), "gcc: {}", String::from_utf8_lossy(&output.stderr));
    program
}
