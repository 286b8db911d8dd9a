//! The command line: parses arguments, calls the library, prints results.
//!
//! Results that a program may want go to standard output, everything else to standard error.

mod agent;
pub mod args;
pub mod attach;
pub mod calibrate;
pub mod doctor;
pub mod environment;
pub mod exit;
mod export;
pub mod generate;
pub mod list;
mod live;
mod log;
mod open_files;
mod outputs;
mod report;
mod request;
mod reread;
pub mod run;
mod sessions;
mod signals;
mod sweep;
pub mod terminal;
mod words;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{printable::printable, sys::own_handler::OwnHandler};
use args::{Cli, Command};
use terminal::{Stream, lost, tell};

/// Parses the arguments, runs the command, and returns its exit code.
pub fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(error) => not_parsed(error),
    };
    if code == ExitCode::SUCCESS {
        terminal::flush();
    }
    let output = lost(Stream::Output);
    if let Some(error) = output {
        tell(format_args!("speed-bump-ebpf: error: cannot write to standard output: {error}"));
    }
    let is_lost = output.is_some() || lost(Stream::Errors).is_some();
    // Another failure takes precedence.
    if code == ExitCode::SUCCESS && is_lost { exit::SYSTEM.into() } else { code }
}

/// Runs the command, and prints the error if it failed.
fn run(cli: &Cli) -> ExitCode {
    log::init(cli.verbose);
    // A write beyond `ulimit -f` must fail, and must not end the tool during an attach. Commands that the
    // tool starts inherit no handler. If installing fails, the default action stays.
    let _beyond_limit = OwnHandler::install(libc::SIGXFSZ.cast_unsigned()).ok();
    let least = match &cli.command {
        None | Some(Command::Run(_) | Command::Sweep(_) | Command::Agent) => open_files::FOR_SESSION,
        Some(Command::List(_)) => open_files::FOR_LIST,
        Some(_) => 0,
    };
    let result = open_files::need(least).and_then(|()| match &cli.command {
        None => attach::run(&cli.attach),
        Some(Command::List(arguments)) => list::run(arguments),
        Some(Command::Run(arguments)) => run::run(arguments, cli.verbose > 0),
        Some(Command::Sweep(arguments)) => sweep::run(arguments),
        Some(Command::Report(arguments)) => report::run(arguments),
        Some(Command::Agent) => agent::run(),
        Some(Command::Set(arguments)) => sessions::set(arguments),
        Some(Command::Sessions(arguments)) => sessions::list(arguments),
        Some(Command::Doctor(arguments)) => doctor::run(arguments),
        Some(Command::Calibrate(arguments)) => calibrate::run(arguments),
        Some(Command::Completions(arguments)) => generate::completions(arguments),
        Some(Command::Man) => generate::man_page(),
    });
    match result {
        Ok(code) => code,
        Err(failure) => {
            failure.tell();
            failure.code.into()
        }
    }
}

/// Prints help, version, or what is wrong with the arguments. Help and version are no errors.
fn not_parsed(error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        Stream::Output.note(error.print());
        return ExitCode::SUCCESS;
    }
    // Messages quote the arguments, so parse a printable copy, which has the same errors.
    let shown = std::env::args_os().map(|argument| printable(argument.to_string_lossy()));
    let _ = Cli::try_parse_from(shown).err().unwrap_or(error).print();
    exit::USAGE.into()
}
