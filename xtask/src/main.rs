//! Developer commands: `cargo xtask --help`.
//!
//! A command is one file, listed in `Command`; `shell`, `system` and `speed_bump_testing` have what several
//! commands need.

mod api;
mod bench;
mod book;
mod debian;
mod demo;
mod deny;
mod ebpf;
mod fuzz;
mod kmod;
#[cfg(test)]
mod links;
mod package;
mod packages;
mod pythons;
mod release;
mod root;
mod shell;
mod soak;
mod system;
mod test;
mod tools;
mod vm;
#[cfg(test)]
mod width;

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
    /// Write the interface of the library to speed-bump-user/api.txt, or check that it is what the file says.
    Api(api::Options),
    /// Run a program for `note-program`'s job as root: how programs that cargo built come to run as root.
    #[command(hide = true)]
    AsRoot(root::AsRoot),
    /// Measure accuracy, resolving and attaching on this machine. Asks for root.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Build the documents as a book, in target/book (mdBook, which is built once).
    Book,
    /// Slow two functions of a small web service, and see which of them matters. Asks for root.
    Demo(demo::Options),
    /// Check the licences, versions and sources of all crates (cargo-deny, which is built once).
    Deny,
    /// Build the BPF objects that the loader embeds, or check that they match the source.
    Ebpf(ebpf::Options),
    /// Fuzz everything that the tool reads from a target, with cargo-fuzz. Needs a nightly Rust.
    Fuzz(fuzz::Options),
    /// Build the kernel module in kmod/ for each of Debian's kernels that it is tested on. Needs root.
    Kmod(kmod::Options),
    /// Note a program in a file, instead of running it.
    #[command(hide = true)]
    NoteProgram(root::Note),
    /// Package each published crate, and check that it compiles from its package.
    Package,
    /// Fetch Python packages from PyPI into target/python-packages, for tests.
    Packages(packages::Options),
    /// Fetch Debian's newer Pythons, and an old one, into target/pythons, for tests.
    Pythons(pythons::Options),
    /// Attach to live Python servers and detach, hundreds of times. Asks for root.
    Soak(soak::Options),
    /// Run all tests and say what was skipped and why. Asks for root.
    Test(test::Options),
}

fn main() -> ExitCode {
    // Other users run the fetched Pythons and read files that tests make, whatever our umask is.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let result = match Arguments::parse().command {
        Command::Api(options) => api::run(&options).map(|()| ExitCode::SUCCESS),
        Command::AsRoot(options) => root::as_root(&options),
        Command::Bench(bench) => bench::run(&bench),
        Command::Book => book::run().map(|()| ExitCode::SUCCESS),
        Command::Demo(options) => demo::run(&options),
        Command::Deny => deny::run().map(|()| ExitCode::SUCCESS),
        Command::Ebpf(options) => ebpf::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Kmod(options) => kmod::run(&options).map(|()| ExitCode::SUCCESS),
        Command::NoteProgram(options) => root::note(&options),
        Command::Package => package::run().map(|()| ExitCode::SUCCESS),
        Command::Packages(options) => packages::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Pythons(options) => pythons::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Soak(options) => soak::run(&options),
        Command::Test(options) => test::run(&options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
