//! Which Python runs the demo's service: one in which the tool can see calls of Python functions.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::{PythonBuild, places, pythons::pythons};

use crate::{pythons as fetched, system};

/// Looked up on `PATH`, in this order.
const NAMES: [&str; 5] = ["python3", "python3.15", "python3.14", "python3.13", "python3.12"];

/// What is fetched where nothing else will do: the oldest that has perf trampolines among Debian's newer ones.
const TO_FETCH: &str = "3.13";

/// An interpreter, and how it is started.
#[derive(Clone, Debug)]
pub(super) enum Python {
    /// 3.12 or later, started with `-X perf`.
    Trampolines { program: PathBuf, version: String },
    /// One whose USDT probe `python:function__entry` fires, started as usual.
    Usdt(&'static PythonBuild),
}

impl Python {
    /// The best that this machine has.
    pub(super) fn choose() -> Result<Self> {
        if let Some(python) = on_this_machine().iter().find_map(|program| with_trampolines(program)) {
            return Ok(python);
        }
        if let Some(python) = pythons().iter().find(|python| python.usdt_fires()) {
            return Ok(Self::Usdt(python));
        }
        if !system::is_debian() {
            bail!(
                "the demo needs a CPython that shows its function calls: 3.12 or later, on PATH or in pyenv \
                 (`pyenv install 3.12`), or 3.15 built with --with-dtrace"
            );
        }
        eprintln!("no Python here shows its function calls; fetching Debian's {TO_FETCH} into target/");
        fetched::fetch(&[TO_FETCH], false)?;
        let program = places::fetched_pythons().join(TO_FETCH).join("python");
        with_trampolines(&program).with_context(|| format!("{} does not run", program.display()))
    }

    /// For people: which, and how it is started.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Trampolines { version, .. } => format!("Python {version}, started with -X perf"),
            Self::Usdt(python) => format!("{python}, which has USDT probes"),
        }
    }

    /// The command that runs a script.
    pub(super) fn command(&self, script: &Path) -> Command {
        match self {
            Self::Trampolines { program, .. } => {
                let mut command = Command::new(program);
                command.args(["-X", "perf"]).arg(script);
                command
            }
            Self::Usdt(python) => python.command(script),
        }
    }
}

/// `PATH`'s interpreters, then pyenv's, newest first.
fn on_this_machine() -> Vec<PathBuf> {
    let mut found: Vec<_> = NAMES.into_iter().filter_map(system::find_program).collect();
    let pyenv = env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    let versions = pyenv.and_then(|pyenv| fs::read_dir(pyenv.join("versions")).ok());
    let mut versions: Vec<_> = versions.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    versions.sort_by_key(|folder| std::cmp::Reverse(minor_version(folder)));
    found.extend(versions.into_iter().map(|folder| folder.join("bin/python3")));
    found
}

/// The minor version of a folder that is named by its version, such as `3.12.1`.
fn minor_version(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.strip_prefix("3.")?.split('.').next()?.parse().ok()
}

/// Says version and true path where `-X perf` takes effect; fails elsewhere. Shims of pyenv and the like hand on to
/// the interpreter, whose path this is.
const QUESTION: &str = "import sys
sys.is_stack_trampoline_active() or sys.exit(1)
print('.'.join(map(str, sys.version_info[:3])))
print(sys.executable)";

fn with_trampolines(program: &Path) -> Option<Python> {
    let output = Command::new(program)
        .args(["-X", "perf", "-c", QUESTION])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let said = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let (version, executable) = said.trim_end().split_once('\n')?;
    // What a wrapper starts through a loader of its own is started through the wrapper again.
    let executable = Path::new(executable);
    let is_interpreter =
        executable.file_name().is_some_and(|name| !name.to_string_lossy().starts_with("ld-"));
    let program = if is_interpreter && executable.is_file() { executable } else { program };
    Some(Python::Trampolines { program: program.to_owned(), version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_numbers() {
        let minor = |name| minor_version(Path::new(name));
        assert!(minor("/x/3.12.1") > minor("/x/3.9.18"));
        assert_eq!(minor("/x/2.7.18"), None);
        assert_eq!(minor("/x/pypy3.10"), None);
    }
}
