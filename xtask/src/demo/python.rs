//! Chooses the Python for the demo's service: an installed one, without special options.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use speed_bump_testing::{
    PythonBuild,
    pythons::{self, Form},
};

use crate::system::{self, Need};

/// The Python that we install if this machine has none.
const NEED: Need =
    Need { program: "/usr/bin/python3", package: "python3", purpose: "to run the demo's service" };

/// An interpreter, as it is started usually.
#[derive(Clone, Debug)]
pub(super) struct Python {
    program: PathBuf,
    version: String,
}

impl Python {
    /// The one on `PATH`, else the newest on this machine, else one that is installed now.
    pub(super) fn choose() -> Result<Self> {
        let on_path = || ask(&system::find_program("python3")?);
        let elsewhere = || {
            let direct = |build: &&PythonBuild| build.form == Form::Direct;
            ask(Path::new(pythons::find().ok()?.iter().rfind(direct)?.interpreter().get_program()))
        };
        if let Some(python) = on_path().or_else(elsewhere) {
            return Ok(python);
        }
        system::ensure(&[NEED])?;
        ask(Path::new(NEED.program)).context("the demo needs a CPython of 3.8 or later as python3 on PATH")
    }

    /// The interpreter's name, for the user.
    pub(super) fn name(&self) -> String {
        format!("Python {}, started as usual", self.version)
    }

    /// The command that runs a script.
    pub(super) fn command(&self, script: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(script);
        command
    }
}

/// Prints version and true path of a CPython from 3.8 on; fails elsewhere. Shims, such as pyenv's, pass the
/// call on to the interpreter, whose path this is.
const QUESTION: &str = "import sys
sys.implementation.name == 'cpython' and sys.version_info >= (3, 8) or sys.exit(1)
print('.'.join(map(str, sys.version_info[:3])))
print(sys.executable)";

fn ask(program: &Path) -> Option<Python> {
    let output = Command::new(program)
        .args(["-c", QUESTION])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let said = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let (version, executable) = said.trim_end().split_once('\n')?;
    Some(Python { program: executable.into(), version: version.to_owned() })
}
