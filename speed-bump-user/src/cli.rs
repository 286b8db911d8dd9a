//! The command line: what was asked, done with the library, and told on the terminal.
//!
//! Results that a program may want go to standard output, everything else to standard error.

pub mod args;
pub mod attach;
pub mod calibrate;
pub mod doctor;
mod engine;
pub mod environment;
pub mod exit;
pub mod generate;
mod kmod;
pub mod list;
pub mod prepare;
pub mod run;
pub mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use exit::Failure;

/// Parses the arguments, runs the command, and returns its exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are no errors; clap knows the difference, and its code for usage is 2 as well.
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    init_tracing(cli.verbose);
    let result = match &cli.command {
        None => attach::run(&cli.attach, cli.verbose > 0),
        Some(Command::List(arguments)) => list::run(arguments),
        Some(Command::Run(arguments)) => run::run(arguments, cli.verbose > 0),
        Some(Command::Doctor(arguments)) => doctor::run(arguments),
        Some(Command::Calibrate(arguments)) => calibrate::run(arguments),
        Some(Command::Completions(arguments)) => generate::completions(arguments),
        Some(Command::Man) => generate::man_page(),
    };
    match result {
        Ok(code) => code,
        Err(Failure { code, error }) => {
            terminal::tell(format_args!("speed-bump-ebpf: error: {error:#}"));
            code.into()
        }
    }
}

/// Log lines on standard error: warnings always, more with each `-v`.
fn init_tracing(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::ERROR,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let filter = tracing_subscriber::filter::Targets::new()
        .with_target("speed_bump_user", level)
        // aya's relocation log is of interest only to who debugs aya.
        .with_default(if verbose > 3 { level } else { tracing::Level::ERROR });
    use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};
    tracing_subscriber::registry()
        .with(
            tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
                .without_time()
                .with_filter(filter),
        )
        .init();
}
