//! Completions and man page, generated from the definition of the flags.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::{
    args::{Cli, CompletionsArgs},
    exit::{Failure, SYSTEM},
    terminal::print_as_is,
};

/// Prints a completion script.
pub fn completions(arguments: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "speed-bump-ebpf", &mut script);
    print_as_is(String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page.
pub fn man_page() -> Result<ExitCode, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .context("cannot render the man page")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    print_as_is(String::from_utf8_lossy(&page).trim_end());
    Ok(ExitCode::SUCCESS)
}
