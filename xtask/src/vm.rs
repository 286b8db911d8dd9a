//! `cargo xtask test --vm`: end-to-end tests on other kernels than this machine's.
//!
//! A *guest* boots a *kernel* with a *root* file system that is made once, and unpacks over it the *files* of one run,
//! which bring the job that it runs. Here that job is test *programs*; their results come back and become a *report*.
//! All of it comes from Debian's packages, lies below target/vm, and changes nothing in this system.

mod files;
mod guest;
mod kernel;
mod places;
mod programs;
mod qemu;
mod report;
mod root;

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};

use guest::{End, Guest};
use kernel::{SERIES, Series};
use programs::{PROGRAMS, Program};

/// How long a guest may take in all.
const LIMIT: Duration = Duration::from_secs(120 * 60);

/// The kernels that were asked for.
#[derive(Clone, Debug)]
pub(crate) struct Selection(Vec<&'static Series>);

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    /// On which kernels.
    pub(crate) selection: &'a Selection,
    /// Names of test programs; none means all.
    pub(crate) programs: &'a [String],
    /// Whether to fetch what is there already.
    pub(crate) update: bool,
    /// Whether to open a shell instead of running them.
    pub(crate) shell: bool,
    /// Whether to write the results into the README.
    pub(crate) write_table: bool,
}

/// Reads the name of a kernel, or `all`.
pub(crate) fn parse_selection(name: &str) -> Result<Selection, String> {
    let selected: Vec<_> = SERIES.iter().filter(|series| name == "all" || name == series.name).collect();
    if selected.is_empty() {
        let names: Vec<_> = SERIES.iter().map(|series| series.name).collect();
        return Err(format!("all, {}", names.join(", ")));
    }
    Ok(Selection(selected))
}

/// Runs the tests on each kernel; fails when one fails.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let programs = select(options.programs)?;
    let (qemu, root) = (qemu::ensure(options.update)?, root::ensure(options.update)?);
    let built = programs::build(&programs)?;
    let mut success = true;
    for series in &options.selection.0 {
        let kernel = kernel::ensure(series, options.update)?;
        let files = programs::job(&programs, &built)?;
        let guest = Guest {
            qemu: &qemu,
            kernel: &kernel,
            root: &root,
            files: &files,
            folder: &places::run(series.name),
            arguments: "",
        };
        println!("\nLinux {}", kernel.release);
        let left = guest.run(LIMIT, |line| println!("  {line}"))?;
        programs::keep_compiled(&left.results)?;
        let tally = report::tally(&programs, &left)?;
        for program in &programs {
            if let Some((output, status)) = report::ended(&left.results, program.name)?
                && status != 0
            {
                println!("\n{} on Linux {}:\n{output}", program.name, kernel.release);
            }
        }
        if !matches!(left.end, End::Finished(_)) {
            println!("\n{}; its console ends with\n{}", report::death(left.end), left.tail());
        }
        print!("\nLinux {}\n{tally}", kernel.release);
        println!("console and results: {}", guest.folder.display());
        success &= tally.is_success();
    }
    Ok(if success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn select(names: &[String]) -> Result<Vec<&'static Program>> {
    if names.is_empty() {
        return Ok(PROGRAMS.iter().collect());
    }
    let find = |name: &String| {
        PROGRAMS.iter().find(|program| program.name == name).with_context(|| {
            let known: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
            format!("no program {name} runs in virtual machines, but {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}
