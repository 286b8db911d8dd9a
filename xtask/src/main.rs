//! Developer commands: `cargo xtask --help`.
//!
//! A command is one file, listed in `Command`; what several need lies in `shell`, `system` and
//! `speed_bump_testing`.

mod ebpf;
mod pythons;
mod shell;
mod system;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of speed-bump-ebpf.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the BPF objects that the loader embeds, or check that they are what the source says.
    Ebpf(ebpf::Options),
    /// Fetch Debian's newer Pythons into target/pythons, for tests.
    Pythons(pythons::Options),
    /// Run all tests and say what was skipped and why.
    Test(test::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Ebpf(options) => ebpf::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Pythons(options) => pythons::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Test(options) => test::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
