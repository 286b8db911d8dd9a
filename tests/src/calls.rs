//! `tests/fixtures/calls.py` under an interpreter, and what its report says of one function.

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use speed_bump_testing::{
    PythonBuild, Service, places, pythons,
    session::Ended,
    tool::{self, Run, Running},
    wait::PATIENCE,
};

/// The fixture's script.
pub fn script() -> PathBuf {
    places::fixtures().join("calls.py")
}

/// Starts the fixture under an interpreter with these options (`-X`, `perf`).
pub fn start(python: &PythonBuild, options: &[&str]) -> Service {
    start_script(python, options, &script())
}

/// The same, which has imported what is timed.
pub fn start_timed(python: &PythonBuild) -> Service {
    let mut service = start(python, &[]);
    service.ask("import timed").unwrap();
    service
}

/// Starts the fixture with these variables in its environment.
pub fn start_with(python: &PythonBuild, options: &[&str], variables: &[(&str, &str)]) -> Service {
    start_command(python, options, &script(), variables)
}

/// Starts a copy of the fixture.
pub fn start_script(python: &PythonBuild, options: &[&str], script: &Path) -> Service {
    start_command(python, options, script, &[])
}

fn start_command(
    python: &PythonBuild,
    options: &[&str],
    script: &Path,
    variables: &[(&str, &str)],
) -> Service {
    let mut command = python.command_with(options, script);
    // Perf trampolines and the JIT exclude each other, and the probe misses compiled calls.
    command.env("PYTHON_JIT", "0").env_remove("PYTHONPERFSUPPORT").envs(variables.iter().copied());
    Service::start(&mut command).unwrap_or_else(|error| panic!("{python}: {error:#}"))
}

/// The first of each minor version among interpreters: enough for what does not hang on how they are run.
pub fn one_of_each_version<'a>(of: impl Iterator<Item = &'a PythonBuild>) -> Vec<&'a PythonBuild> {
    let mut found: Vec<&PythonBuild> = Vec::new();
    for python in of {
        if found.last().is_none_or(|last| last.minor() != python.minor()) {
            found.push(python);
        }
    }
    found
}

/// The interpreters with perf trampolines.
pub fn with_trampolines() -> impl Iterator<Item = &'static PythonBuild> {
    pythons().iter().filter(|python| python.trampolines)
}

/// The interpreters whose `function__entry` fires for every function.
pub fn with_usdt() -> impl Iterator<Item = &'static PythonBuild> {
    pythons().iter().filter(|python| python.usdt_fires())
}

/// Calls and delayed calls of a function of any target; none when the report does not have it.
pub fn counts(ended: &Ended, name: &str) -> (u64, u64) {
    let functions = functions(ended);
    let of_name = functions.iter().filter(|function| function["name"] == name);
    of_name.fold((0, 0), |(calls, delayed), function| {
        (calls + function["calls"].as_u64().unwrap(), delayed + function["delayed"].as_u64().unwrap())
    })
}

/// All functions of the report.
pub fn functions(ended: &Ended) -> Vec<&Value> {
    let targets = ended.report["targets"].as_array().unwrap();
    targets.iter().flat_map(|target| target["functions"].as_array().unwrap()).collect()
}

/// The loader run to its end on a process, with targets of this text.
pub fn run(pid: i32, targets: &str, flags: &[&str]) -> Run {
    run_command(None, pid, targets, flags)
}

/// `list` on a process, with targets of this text.
pub fn list(pid: i32, targets: &str, flags: &[&str]) -> Run {
    run_command(Some("list"), pid, targets, flags)
}

fn run_command(verb: Option<&str>, pid: i32, targets: &str, flags: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.txt");
    fs::write(&file, targets).unwrap();
    let mut command = Command::new(tool::path().unwrap());
    command.args(verb).args(["--pid", &pid.to_string(), "--targets"]).arg(&file).args(flags);
    Running::start(&mut command).unwrap().finish(PATIENCE).unwrap()
}

/// The evaluator's code in a running interpreter, which a probe changes.
pub fn code(pid: i32, python: &PythonBuild) -> Vec<u8> {
    let name = python.library.file_name().unwrap().to_str().unwrap().to_owned();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut code = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.ends_with(&name)) {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.read_exact_at(&mut bytes, start).unwrap();
        code.extend(bytes);
    }
    assert!(!code.is_empty(), "{python} maps no code of {name}:\n{maps}");
    code
}
