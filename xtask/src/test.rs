//! `cargo xtask test`: all tests, and an honest count of what ran.
//!
//! A test that this machine cannot run reports that through `speed_bump_testing::skip`. libtest counts it as
//! passed, and this command corrects that. A skip that tests/skips.toml does not list is a failure.

mod alone;
mod bare;
mod mounts;
mod panics;
mod parts;
pub(crate) mod skip_list;
pub(crate) mod tally;

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    thread,
};

use anyhow::{Context as _, Result};
use clap::Args;
use speed_bump_testing::{places, skip};

use crate::{
    packages, pythons, root, shell,
    system::{self, Need},
    vm,
};
use alone::AloneList;
use skip_list::{Place, SkipList};
use tally::Tally;

/// Programs that the tests run.
const NEEDS: [Need; 9] = [
    Need { program: "gcc", package: "gcc", purpose: "to compile the programs that tests attach to" },
    Need {
        program: "/usr/include/stdio.h",
        package: "libc6-dev",
        purpose: "to compile the programs that tests attach to",
    },
    Need { program: "g++", package: "g++", purpose: "to compile programs with mangled names" },
    Need {
        program: "objcopy",
        package: "binutils",
        purpose: "to make stripped files, and files with separate debugging information",
    },
    Need { program: "xz", package: "xz-utils", purpose: "to make files with mini-debuginfo" },
    Need {
        program: "/usr/bin/python3",
        package: "python3",
        purpose: "the system's Python, a target of tests",
    },
    Need {
        program: "python3-config",
        package: "python3-dev",
        purpose: "the system's libpython, for programs with an interpreter in them",
    },
    Need {
        program: "setpriv",
        package: "util-linux",
        purpose: "to run as other users, with fewer capabilities and with other mounts",
    },
    Need { program: "make", package: "make", purpose: "to build kmod's parsers and run their tests" },
];

/// Programs for a few tests, which are skipped without them.
const OPTIONAL: [Need; 5] = [
    Need {
        program: "musl-gcc",
        package: "musl-tools",
        purpose: "to compile a program with another C library",
    },
    Need { program: "go", package: "golang-go", purpose: "to compile a Go program" },
    Need { program: "node", package: "nodejs", purpose: "a program that moves its code to huge pages" },
    Need { program: "/usr/bin/chromium", package: "chromium", purpose: "to look at reports as people do" },
    Need { program: "/usr/bin/chromedriver", package: "chromium-driver", purpose: "to do so in tests" },
];

/// How many tests of a program run at a time (libtest).
const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";

#[derive(Args)]
pub(crate) struct Options {
    /// Install and fetch nothing: tests of missing Pythons and packages are skipped, other missing things
    /// fail.
    #[arg(long)]
    offline: bool,
    #[arg(long, value_name = "KERNEL", value_parser = vm::parse_selection, help = vm::help())]
    vm: Option<vm::Selection>,
    /// With --vm: fetch newer kernels and packages, even if some are cached.
    #[arg(long, requires = "vm")]
    update: bool,
    /// With --vm and one kernel: open a shell in the guest instead of running the tests there.
    #[arg(long, requires = "vm", conflicts_with = "write_table")]
    shell: bool,
    /// With --vm: write the results into docs/kernels.md.
    #[arg(long, requires = "vm")]
    write_table: bool,
    /// Run them in an empty Debian, made by debootstrap in target/bare: in a copy of the working tree, with
    /// only the kernel and the Rust of this machine. Takes an hour or so.
    #[arg(long, conflicts_with_all = ["offline", "vm", "no_root"])]
    bare: bool,
    /// Do not ask for root: tests that need it are skipped.
    #[arg(long)]
    no_root: bool,
    /// Arguments for `cargo test`, such as `-p speed-bump-tests --test native native_functions::`. Default:
    /// the whole workspace. With --vm: files of end-to-end tests of which all tests run, such as
    /// `native_functions`. Default: chosen tests of all that run there.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo: Vec<String>,
}

/// Runs the tests; fails when one fails. The summary's last line is `N passed, N failed, N skipped`.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(selection) = &options.vm {
        return vm::run(&vm::Options {
            selection,
            programs: &options.cargo,
            update: options.update,
            shell: options.shell,
            write_table: options.write_table,
        });
    }
    if options.bare {
        bare::run(&options.cargo)?;
        return Ok(ExitCode::SUCCESS);
    }
    mounts::check()?;
    let mut parts = parts::parts(&options.cargo);
    let mut success = true;
    if !options.offline {
        system::ensure(&NEEDS)?;
        let build = options.cargo.is_empty().then(|| start_build(&parts)).transpose()?;
        fetch();
        if let Some(mut build) = build
            && !build.wait().context("cannot wait for cargo")?.success()
        {
            success = false;
            parts.clear();
        }
    }
    let list = SkipList::read()?;
    let place = match env::var_os("CI") {
        _ if options.offline => Place::Offline,
        Some(_) => Place::Ci,
        None => Place::Host,
    };
    let skips = places::target().join("test-skips.txt");
    fs::create_dir_all(places::target())?;
    fs::write(&skips, "").with_context(|| format!("cannot write {}", skips.display()))?;

    let mut tally = Tally::default();
    // Whether commands failed only because tests failed. A command that did not compile has no failed tests.
    let mut are_tests = true;
    for part in &parts {
        let mut runs = commands(part, &skips, options.no_root)?;
        for command in &mut runs.commands {
            let [_, failed_before, _] = tally.counts();
            let has_passed = run_and_read(command, &mut tally)?;
            let [_, failed, _] = tally.counts();
            success &= has_passed;
            are_tests &= has_passed || failed > failed_before;
        }
    }
    if !success && are_tests && options.cargo.is_empty() {
        success = run_alone(&mut tally, &skips, options.no_root)?;
    }
    tally
        .read_skips(&fs::read_to_string(&skips).with_context(|| format!("cannot read {}", skips.display()))?);
    tally.finish(success, &list, place);
    if options.cargo.is_empty() {
        tally.look_for_unused(&list, place);
    }
    print!("\n{tally}");
    Ok(if tally.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What runs this part of the tests.
fn commands(part: &[String], skips: &Path, no_root: bool) -> Result<root::Runs> {
    let mut cargo = cargo_test("--no-fail-fast", part);
    cargo.env(skip::FILE_VARIABLE, skips);
    if env::var_os(THREADS_VARIABLE).is_none() {
        // Tests wait for processes, half of their time.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        cargo.env(THREADS_VARIABLE, (2 * processors).to_string());
    }
    root::split(cargo, no_root)
}

/// Runs failed tests of tests/alone.toml once more, with nothing beside them. Returns whether all is well
/// then.
fn run_alone(tally: &mut Tally, skips: &Path, no_root: bool) -> Result<bool> {
    let list = AloneList::read()?;
    let Some(failures) = tally.explained_failures().cloned() else { return Ok(false) };
    let again = list.again(&failures);
    for test in &again {
        println!("\n{} runs once more, alone", test.test);
        let mut alone = Tally::default();
        let mut success = true;
        let skips_before = length(skips)?;
        for command in &mut commands(&test.arguments(), skips, no_root)?.commands {
            success &= run_and_read(command, &mut alone)?;
        }
        // A test that skips itself has not passed, though libtest says so.
        let has_skipped = length(skips)? > skips_before;
        if success && !has_skipped && alone.counts() == [1, 0, 0] {
            tally.has_passed_alone(test.test.to_owned());
        }
    }
    Ok(tally.counts()[1] == 0)
}

fn length(file: &Path) -> Result<u64> {
    let metadata = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(metadata.len())
}

fn cargo_test(flag: &str, part: &[String]) -> Command {
    let mut cargo = shell::cargo();
    cargo.args(["test", flag]).args(part);
    cargo
}

/// Starts the longest build: it uses the processors while fetching uses the network.
fn start_build(parts: &[Vec<String>]) -> Result<Child> {
    let mut cargo = cargo_test("--no-run", parts.last().map_or(&[], Vec::as_slice));
    cargo.stdin(Stdio::null()).spawn().context("cannot run cargo")
}

/// Fetches the programs for a few tests. If one is missing, they are skipped; tests/skips.toml lists the
/// allowed skips.
fn fetch() {
    for need in OPTIONAL {
        if let Err(error) = system::ensure(&[need]) {
            eprintln!("warning: no {} for the tests: {error:#}", need.package);
        }
    }
    if let Err(error) = pythons::ensure() {
        eprintln!("warning: not all Pythons for the tests: {error:#}");
    }
    if let Err(error) = packages::ensure() {
        eprintln!("warning: not all Python packages for the tests: {error:#}");
    }
}

/// Runs a command that runs tests, and counts what they print. Returns whether it succeeded.
fn run_and_read(command: &mut Command, tally: &mut Tally) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let output = child.stdout.take().context("the tests have no standard output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read what the tests print")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.read_line(&line);
    }
    Ok(child.wait().context("cannot wait for the tests")?.success())
}
