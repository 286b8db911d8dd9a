//! The Pythons of the matrix: every interpreter of this machine, with and without what can be switched on in it.

use std::{fmt, process::Command};

use speed_bump_testing::{PythonBuild, pythons, pythons::Form};

use crate::program;

/// One interpreter, and how it is switched.
#[derive(Clone, Copy)]
pub(crate) struct Interpreter {
    build: &'static PythonBuild,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain,
    Jit,
    WithGil,
}

impl Interpreter {
    /// The command that runs the matrix's program.
    pub(crate) fn command(self) -> Command {
        let mut command = self.build.command(&program::script());
        match self.mode {
            Mode::Plain => command.env("PYTHON_JIT", "0"),
            Mode::Jit => command.env("PYTHON_JIT", "1"),
            Mode::WithGil => command.env("PYTHON_GIL", "1"),
        };
        command
    }
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Plain => "",
            Mode::Jit => " with its JIT on",
            Mode::WithGil => " with its GIL on",
        };
        write!(f, "{}{mode}", self.build)
    }
}

/// Which interpreters one test is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// All of a minor version, as they come.
    Version(u8, u8),
    /// Those without a GIL.
    FreeThreaded,
    /// Those with a JIT compiler, switched on.
    Jit,
}

impl Wanted {
    /// Those of this machine. When there is none, the reason.
    pub(crate) fn interpreters(self) -> Result<Vec<Interpreter>, String> {
        let found: Vec<_> = pythons().iter().flat_map(|build| self.of(build)).collect();
        if found.is_empty() { Err(self.reason()) } else { Ok(found) }
    }

    fn of(self, build: &'static PythonBuild) -> Vec<Interpreter> {
        let modes: &[Mode] = match self {
            Self::Version(..) if build.free_threaded => &[],
            Self::Version(major, minor) if build.minor() == (major, minor) => &[Mode::Plain],
            Self::FreeThreaded if build.free_threaded => &[Mode::Plain, Mode::WithGil],
            // A container makes no difference to a JIT.
            Self::Jit if build.has_jit && build.form != Form::Container => &[Mode::Jit],
            _ => &[],
        };
        modes.iter().map(|&mode| Interpreter { build, mode }).collect()
    }

    fn reason(self) -> String {
        match self {
            Self::Version(major, minor @ 13..) => {
                format!("this machine has no Python {major}.{minor}: run `cargo xtask pythons`")
            }
            Self::Version(major, minor) => {
                format!("this machine has no Python {major}.{minor}: pyenv can install one")
            }
            Self::FreeThreaded => "this machine has no free-threaded Python, and Debian packages none: \
                `cargo xtask pythons --build` builds one from Debian's source"
                .to_owned(),
            Self::Jit => "no Python of this machine has a JIT compiler: run `cargo xtask pythons`".to_owned(),
        }
    }
}
