//! Completions and man page, generated from the definition of the flags.

use std::{io, process::ExitCode};

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::{
    args::{Cli, CompletionsArgs},
    exit::{Failure, SYSTEM},
};

/// Prints a completion script.
pub fn completions(arguments: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut command = Cli::command();
    clap_complete::generate(arguments.shell, &mut command, "speed-bump-ebpf", &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page.
pub fn man_page() -> Result<ExitCode, Failure> {
    clap_mangen::Man::new(Cli::command())
        .render(&mut io::stdout())
        .context("cannot print the man page")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    Ok(ExitCode::SUCCESS)
}
