//! `cargo xtask bench`: what was promised, measured on this machine. No test and no CI runs it.

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// x
    Accuracy,
}
pub(crate) fn run(_bench: &Bench) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
