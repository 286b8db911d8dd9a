//! The tests that run in guests: built here, and put where they expect their files. Each test file runs as a
//! program of its own, so that one that dies does not end the others.

mod list;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::Value;
use speed_bump_testing::{places as tree, pythons, wait};

pub(super) use list::PROGRAMS;

use super::{files::Files, places, root};
use crate::{
    release, shell,
    system::{self, Need},
};

/// An engine of the tool; tests are counted by engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// The BPF program.
    Bpf,
    /// The helper, on a signal.
    Signal,
    /// The kernel module in kmod/, which these tests load themselves.
    Kmod,
}

impl Engine {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Bpf, Self::Signal, Self::Kmod];
}

/// A file of end-to-end tests that runs in guests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The area whose test program contains this file: a folder of `tests`.
    area: &'static str,
    /// Its name, which is that of the module.
    pub(super) name: &'static str,
    /// The tests of the file that run by default. If the user names the file, all its tests run.
    tests: &'static [&'static str],
    /// The engine that it uses.
    pub(super) engine: Engine,
}

impl Program {
    /// Arguments for the area's test program, to run these tests.
    fn arguments(&self, job: Job) -> String {
        let Self { name, tests, .. } = self;
        if job == Job::Whole {
            return format!("{name}::");
        }
        let tests = tests.iter().map(|test| format!(" {name}::{test}"));
        format!("--exact{}", tests.collect::<String>())
    }
}

/// How long a program may take in a guest, in seconds.
const LIMIT_S: u32 = 15 * 60;
/// The package that the tests belong to.
const PACKAGE: &str = "speed-bump-tests";
/// The job that runs the tests, and one that gives a person a shell to run them.
const TESTS: &str = include_str!("tests.sh");
const SHELL: &str = include_str!("shell.sh");
const GCC: &str = include_str!("gcc.sh");
/// How many times slower than an ordinary machine an emulated guest on a busy host is.
const SLOWNESS: u32 = 5;
/// How many random sequences a guest has time for.
const SEQUENCES: u32 = 100;
/// Where the job finds files that earlier guests compiled.
const COMPILED: &str = "/guest/compiled";

/// Where guests have the kernel module, if one could be built for them.
const MODULE: &str = "/guest/speed_bump.ko";

/// Built test programs, by area, and the tool.
#[derive(Debug)]
pub(super) struct Built {
    tests: BTreeMap<String, PathBuf>,
    tool: PathBuf,
}

const STRIP: Need =
    Need { program: "strip", package: "binutils", purpose: "to leave debugging information out of guests" };

/// Builds these programs and the tool.
pub(super) fn build(programs: &[&Program]) -> Result<Built> {
    system::ensure(&[STRIP])?;
    let mut command = shell::cargo();
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics", "--package", PACKAGE]);
    for area in areas(programs) {
        command.args(["--test", area]);
    }
    let messages = shell::output_shown(&mut command)?;
    let tests = executables(&messages);
    // Its optimised build: otherwise it takes seconds to start here.
    let tool = release::build()?;
    Ok(Built { tests, tool })
}

/// The areas of these programs, each once.
fn areas(programs: &[&Program]) -> BTreeSet<&'static str> {
    programs.iter().map(|program| program.area).collect()
}

/// The test programs among cargo's messages, by the names of their targets.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["target"]["kind"][0] == "test")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect()
}

/// What the job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// The programs' chosen tests.
    Chosen,
    /// All of their tests.
    Whole,
    /// A shell.
    Shell,
}

/// A job with these programs, and with all that they need.
pub(super) fn files(programs: &[&Program], built: &Built, job: Job) -> Result<Files> {
    let files = Files::new(&places::all())?;
    let (root, target) = (tree::root(), tree::target());
    // Programs find the tree by its lock file.
    files.copy_stripped(&built.tool, &built.tool)?;
    let path = |area| built.tests.get(area).with_context(|| format!("cargo built no {area}"));
    for area in areas(programs) {
        files.copy_stripped(path(area)?, path(area)?)?;
    }
    let mut list = String::new();
    for program in programs {
        let (path, arguments) = (path(program.area)?, program.arguments(job));
        let _ = writeln!(list, "{} {LIMIT_S} {} {arguments}", program.name, path.display());
    }
    let package = root.join("tests");
    for part in [root.join("Cargo.lock"), root.join("Cargo.toml"), package.clone()] {
        files.copy(&part, &part)?;
    }
    files.folder(&target.join("tmp"))?;
    if places::compiled().is_dir() {
        files.copy(&places::compiled(), Path::new(COMPILED))?;
    }
    let environment = [
        ("CARGO_MANIFEST_DIR", package.display().to_string()),
        ("SPEED_BUMP_TOOL", built.tool.display().to_string()),
        ("SPEED_BUMP_PYTHONS", root::PYTHONS.to_owned()),
        (pythons::WANTED_VARIABLE, root::NEWER_PYTHON.to_owned()),
        (wait::SLOWNESS_VARIABLE, SLOWNESS.to_string()),
        ("SPEED_BUMP_SEQUENCES", SEQUENCES.to_string()),
        ("SPEED_BUMP_MODULE", MODULE.to_owned()),
        ("RUST_BACKTRACE", "1".to_owned()),
    ];
    let mut text = format!("cd \"{}\"\n", package.display());
    for (name, value) in environment {
        let _ = writeln!(text, "export {name}=\"{value}\"");
    }
    files.write(Path::new("/guest/environment"), &text, 0o644)?;
    files.write(Path::new("/guest/programs"), &list, 0o644)?;
    let job = if job == Job::Shell { SHELL } else { TESTS };
    for (command, text) in [("job", job), ("tests", TESTS), ("bin/gcc", GCC), ("bin/cc", GCC)] {
        files.write(&Path::new("/guest").join(command), text, 0o755)?;
    }
    Ok(files)
}

/// Adds the kernel module, and what its own tests need.
pub(super) fn add_module(files: &Files, module: &Path) -> Result<()> {
    let tests = tree::root().join("kmod/tests");
    shell::output(Command::new("make").arg("-C").arg(&tests).arg("guest"))?;
    files.copy(module, Path::new(MODULE))?;
    files.copy(&tests, &tests)
}

/// Keeps the files that a guest compiled, for the next one.
pub(super) fn keep_compiled(results: &Path) -> Result<()> {
    let compiled = results.join("compiled");
    if compiled.is_dir() {
        let kept = places::compiled();
        shell::output(
            Command::new("cp").args(["--archive", "--no-target-directory"]).arg(compiled).arg(kept),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn chosen_tests_exist() {
        for program in &PROGRAMS {
            let path = tree::root().join("tests").join(program.area).join(format!("{}.rs", program.name));
            let source = fs::read_to_string(&path).unwrap();
            assert!(!program.tests.is_empty(), "{}", program.name);
            for test in program.tests {
                assert!(source.contains(&format!("#[test]\nfn {test}() {{")), "{}: {test}", program.name);
            }
        }
    }

    #[test]
    fn a_program_is_a_part_of_its_areas() {
        let [first, second] = [&PROGRAMS[0], &PROGRAMS[1]];
        assert_eq!((first.area, second.area), ("native", "native"));
        assert_eq!(areas(&[first, second]).len(), 1);
        assert_eq!(first.arguments(Job::Whole), "native_functions::");
        let chosen = second.arguments(Job::Chosen);
        assert!(chosen.starts_with("--exact session_usdt::all_locations_"), "{chosen}");
        assert!(chosen.contains(" session_usdt::frequency_counts_over_the_locations "), "{chosen}");
    }

    #[test]
    fn test_programs_are_told_by_name() {
        let text = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"lib"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"speed-bump-ebpf"},"executable":"/t/debug/speed-bump-ebpf"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"native"},"executable":"/t/debug/deps/native-1"}
{"reason":"build-finished","success":true}
"#;
        let found: Vec<_> = executables(text).into_iter().collect();
        assert_eq!(found, [("native".to_owned(), PathBuf::from("/t/debug/deps/native-1"))]);
    }
}
