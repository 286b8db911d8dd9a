//! `cargo xtask test --vm`: end-to-end tests on other kernels than this machine's.
//!
//! A *guest* boots a *kernel* with a *root* file system that is made once, and unpacks over it the *files* of
//! one run, which contain the *job* to run. Here the job runs test *programs*; their results come back and
//! become a *report*. All of it comes from Debian's packages and is kept below target/vm; nothing in this
//! system changes.
//!
//! Another job, such as one with a module, has other files with another `/guest/job`: see [`Host::guest`].

mod files;
mod guest;
mod kernel;
mod module;
mod places;
mod programs;
mod qemu;
mod report;
mod root;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::side_by_side;

use crate::test::{
    skip_list::{Place, SkipList},
    tally::Tally,
};
use files::Files;
use guest::{End, Guest, Left};
pub(crate) use kernel::SERIES;
use kernel::{Kernel, Series};
use programs::{Built, Engine, Job, PROGRAMS, Program};
use qemu::Qemu;
use table::Row;

/// The most time for a guest.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The wanted kernels.
#[derive(Clone, Debug)]
pub(crate) struct Selection(Vec<&'static Series>);

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    /// The kernels.
    pub(crate) selection: &'a Selection,
    /// Names of test files, all of whose tests run; without any, the chosen tests of all files.
    pub(crate) programs: &'a [String],
    /// Whether to fetch parts that are already there.
    pub(crate) update: bool,
    /// Whether to open a shell instead.
    pub(crate) shell: bool,
    /// Whether to write the results into docs/kernels.md.
    pub(crate) write_table: bool,
}

/// What `--vm` does, and which kernels it knows.
pub(crate) fn help() -> String {
    let names: Vec<_> = SERIES.iter().map(|series| series.name).collect();
    format!(
        "Run end-to-end tests on Debian's kernels instead, in virtual machines: all, {}",
        names.join(", ")
    )
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

/// What all guests share.
#[derive(Debug)]
pub(crate) struct Host {
    qemu: Qemu,
    root: PathBuf,
}

impl Host {
    /// Fetches and makes the missing parts; with `update`, all of them again.
    pub(crate) fn ensure(update: bool) -> Result<Self> {
        Ok(Self { qemu: qemu::ensure(update)?, root: root::ensure(update)? })
    }

    /// A guest with this kernel, which runs the executable file `/guest/job` from these files. Its results go
    /// into the folder.
    pub(crate) fn guest<'a>(&'a self, kernel: &'a Kernel, files: &'a Files, folder: &'a Path) -> Guest<'a> {
        Guest { qemu: &self.qemu, kernel, root: &self.root, files, folder, arguments: "" }
    }
}

/// Runs the tests on each kernel; fails when one fails.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let selected = &options.selection.0;
    if options.write_table && !options.programs.is_empty() {
        bail!("the table is about all programs: --write-table, and no programs by name");
    }
    if options.shell && selected.len() > 1 {
        bail!("a shell wants one kernel: --vm {} --shell", selected[0].name);
    }
    let list = SkipList::read()?;
    let programs = select(options.programs)?;
    let built = programs::build(&programs)?;
    let host = Host::ensure(options.update)?;
    let job = if options.shell {
        Job::Shell
    } else if options.programs.is_empty() {
        Job::Chosen
    } else {
        Job::Whole
    };
    let mut trials = Vec::new();
    for series in selected {
        let is_named = !options.programs.is_empty();
        let programs = programs.iter().copied().filter(|program| is_named || series.runs(program.name));
        trials.push(Trial::prepare(series, programs.collect(), &built, job, options.update)?);
    }
    if let (true, Some(trial)) = (options.shell, trials.first()) {
        let results = trial.guest(&host).run_here()?;
        println!("results: {}", results.display());
        return Ok(ExitCode::SUCCESS);
    }
    let trials: Vec<_> = trials.into_iter().map(|trial| (trial, OnceLock::new())).collect();
    // An emulated machine uses a whole processor.
    side_by_side::on_each(&trials, |(trial, left)| {
        let (name, release) = (trial.series.name, &trial.kernel.release);
        println!("  {name}: Linux {release} boots");
        left.get_or_init(|| trial.guest(&host).run(LIMIT, |line| println!("  {name}: {line}")));
    });
    let (mut success, mut rows) = (true, Vec::new());
    for (trial, left) in trials {
        let left = left.into_inner().context("a guest was never started")??;
        let (tally, row) = report(&trial, &left, &list, options.programs.is_empty())?;
        success &= tally.is_success();
        rows.push(row);
    }
    if options.write_table {
        table::write(&rows)?;
    }
    Ok(if success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the kernel module for each kernel that its tests run on. Returns the kernel's release, and the
/// module's file. With `update`, for newer kernels than those that are there.
pub(crate) fn build_modules(update: bool) -> Vec<(String, Result<PathBuf>)> {
    let build = |series: &'static Series| match kernel::ensure(series, update) {
        Ok(kernel) => (kernel.release.clone(), module::ensure(series, &kernel, update)),
        Err(error) => (series.name.to_owned(), Err(error)),
    };
    let runs_module = |series: &&Series| {
        PROGRAMS.iter().any(|program| program.engine == Engine::Kmod && series.runs(program.name))
    };
    SERIES.iter().filter(runs_module).map(build).collect()
}

/// A kernel, and the programs to run on it.
struct Trial {
    series: &'static Series,
    programs: Vec<&'static Program>,
    kernel: Kernel,
    files: Files,
    folder: PathBuf,
}

impl Trial {
    fn prepare(
        series: &'static Series,
        programs: Vec<&'static Program>,
        built: &Built,
        job: Job,
        update: bool,
    ) -> Result<Self> {
        let kernel = kernel::ensure(series, update)?;
        let files = programs::files(&programs, built, job)?;
        if let Some(module) = kernel.overlay() {
            files.copy(&module, Path::new("/guest/overlay.ko"))?;
        }
        if programs.iter().any(|program| program.engine == Engine::Kmod) {
            match module::ensure(series, &kernel, update) {
                Ok(module) => programs::add_module(&files, &module)?,
                // Its tests report that they are skipped, which may not be allowed.
                Err(error) => eprintln!("warning: no kernel module for Linux {}: {error:#}", kernel.release),
            }
        }
        Ok(Self { series, programs, kernel, files, folder: places::run(series.name) })
    }

    fn guest<'a>(&'a self, host: &'a Host) -> Guest<'a> {
        host.guest(&self.kernel, &self.files, &self.folder)
    }
}

/// Prints the results of a guest's programs; `all` if these are all that run there.
fn report(trial: &Trial, left: &Left, list: &SkipList, is_all: bool) -> Result<(Tally, Row)> {
    let place = Place::Guest(trial.series.name);
    let programs = &trial.programs;
    let release = &trial.kernel.release;
    programs::keep_compiled(&left.results)?;
    let mut tally = report::tally(programs, left, list, place)?;
    if is_all {
        tally.look_for_unused(list, place);
    }
    for program in programs {
        if let Some((output, status)) = report::ended(&left.results, program.name)?
            && status != 0
        {
            println!("\n{} on Linux {release}:\n{output}", program.name);
        }
    }
    if !matches!(left.end, End::Finished(_)) {
        println!("\n{}; its console ends with\n{}", report::death(left.end), left.tail());
    }
    println!("\nLinux {release}; console and results are in {}\n{tally}", trial.folder.display());
    let doctor = fs::read_to_string(left.results.join("doctor.txt")).unwrap_or_default();
    let by_engine = Engine::ALL.map(|engine| report::of_engine(engine, programs, left, list, place));
    let row = Row::new(release, by_engine.into_iter().collect::<Result<_>>()?, &tally, &doctor);
    Ok((tally, row))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kernels_are_named_by_version_or_all_at_once() {
        let names = |selection: Selection| selection.0.iter().map(|series| series.name).collect::<Vec<_>>();
        assert_eq!(names(parse_selection("6.12").unwrap()), ["6.12"]);
        assert_eq!(names(parse_selection("all").unwrap()).len(), SERIES.len());
        let error = parse_selection("5.4").unwrap_err();
        assert!(error.starts_with("all, 5.10, 6.1, "), "{error}");
    }

    #[test]
    fn programs_are_named_or_all() {
        assert_eq!(select(&[]).unwrap().len(), PROGRAMS.len());
        let name = PROGRAMS[1].name.to_owned();
        assert_eq!(select(std::slice::from_ref(&name)).unwrap(), [&PROGRAMS[1]]);
        let error = select(&["no_such".to_owned()]).unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
    }
}
