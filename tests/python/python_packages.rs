//! Large packages from PyPI in the process, with a target inside each.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use speed_bump_testing::{
    Attached, PythonBuild, Service, case_ran, places, pythons,
    pythons::Form,
    session::{Ended, obstacle},
    skip, skip_case,
};

/// A package, what uses it, and the functions that each use calls once.
struct Package {
    /// The fixture's command.
    command: &'static str,
    /// The package whose folder says that it is installed.
    installed: &'static str,
    targets: &'static [&'static str],
}

const PACKAGES: [Package; 3] = [
    Package { command: "numpy", installed: "numpy", targets: &["numpy.*:linspace"] },
    Package {
        command: "transformers",
        installed: "transformers",
        targets: &["transformers.*:PreTrainedConfig.to_dict"],
    },
    Package {
        command: "web",
        installed: "fastapi",
        targets: &[
            "uvicorn.*:RequestResponseCycle.run_asgi",
            "fastapi.routing:serialize_response",
            "*/packages.py:make_application.<locals>.item",
        ],
    },
];

/// The interpreters that packages were fetched for, each with their folder.
fn with_packages() -> Vec<(&'static PythonBuild, PathBuf)> {
    let builds = pythons().iter().filter(|build| build.form != Form::Container && !build.free_threaded);
    let folders = builds.map(|build| (build, places::python_packages(build.minor())));
    let is_for_us = |folder: &Path| PACKAGES.iter().any(|package| folder.join(package.installed).is_dir());
    folders.filter(|(_, folder)| is_for_us(folder)).collect()
}

/// Runs a case for each package of each interpreter that it is possible on. A macro, so that what is skipped
/// goes by the name of the test.
macro_rules! on_each {
    ($possible:expr, $case:expr) => {{
        let found = with_packages();
        if found.is_empty() {
            return skip!("no packages are here: run `cargo xtask packages`, which needs PyPI");
        }
        let mut wrong = Vec::new();
        for (build, folder) in found {
            for package in &PACKAGES {
                let name = format!("{build}, {}", package.command);
                if let Err(why) = $possible(build) {
                    skip_case!(name, "{why}");
                } else if !folder.join(package.installed).is_dir() {
                    skip_case!(name, "{} was not fetched for it", package.installed);
                } else {
                    case_ran!();
                    let done = in_program(build, &folder, package, $case);
                    wrong.extend(done.err().map(|error| format!("{name}: {error:#}")));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }};
}

/// Runs a case in a program that finds the packages of a folder.
fn in_program(
    build: &PythonBuild,
    folder: &Path,
    package: &Package,
    case: impl Fn(&mut Service, &Package) -> Result<()>,
) -> Result<()> {
    let mut command = build.command(&places::fixtures().join("packages.py"));
    let mut service = Service::start(command.env("PYTHONPATH", folder).env("PYTHON_JIT", "0"))?;
    case(&mut service, package)?;
    ensure!(service.quit()?.success(), "the program failed at its end");
    Ok(())
}

/// The program by itself needs nothing more.
fn always(_: &PythonBuild) -> Result<(), &'static str> {
    Ok(())
}

fn attach(service: &Service, package: &Package) -> Result<Attached> {
    Attached::start(service.pid(), &(package.targets.join("\n") + "\n"), &["--delay", "1us"])
}

/// Fails unless every target was called and delayed this often.
fn check(ended: &Ended, package: &Package, calls: u64) -> Result<()> {
    for (position, target) in package.targets.iter().enumerate() {
        let counts = ended.counts(position);
        ensure!(
            counts == (calls, calls),
            "{target}: {calls} calls, counted and delayed {counts:?}: {}",
            ended.run.stderr
        );
    }
    Ok(())
}

#[test]
fn the_packages_run_on_their_interpreters() {
    on_each!(always, |service: &mut Service, package: &Package| {
        let answer = service.ask(&format!("{} 3", package.command))?;
        let version = answer.first().and_then(|event| event["version"].as_str()).context("no version")?;
        ensure!(!version.is_empty());
        service.ask(&format!("{} 2", package.command)).map(drop)
    });
}

#[test]
fn a_target_in_a_package_that_is_loaded_is_counted_exactly() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    on_each!(always, |service: &mut Service, package: &Package| {
        service.ask(&format!("{} 1", package.command))?;
        let session = attach(service, package)?;
        service.ask(&format!("{} 50", package.command))?;
        let ended = session.stop()?;
        // At its old speed, uncounted.
        service.ask(&format!("{} 10", package.command))?;
        check(&ended, package, 50)
    });
}

#[test]
fn a_target_in_a_package_that_is_imported_later_is_counted_exactly() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    on_each!(always, |service: &mut Service, package: &Package| {
        let session = attach(service, package)?;
        service.ask(&format!("{} 50", package.command))?;
        check(&session.stop()?, package, 50)
    });
}
