//! The Pythons of the matrix: every interpreter of this machine, with and without what can be switched on in
//! it.

use std::{fmt, process::Command};

use speed_bump_testing::{
    PythonBuild, matrix, pythons,
    pythons::{Form, absence},
};

use super::embedded::Embedding;

/// One interpreter, and how it is run.
#[derive(Debug)]
pub(crate) struct Interpreter {
    build: &'static PythonBuild,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Plain,
    Jit,
    WithGil,
    Embedded(Embedding),
}

impl Interpreter {
    /// What the program must say of its interpreter: whether its JIT and its GIL are on.
    pub(crate) fn switches(&self) -> (bool, bool) {
        (matches!(self.mode, Mode::Jit), !self.build.free_threaded || matches!(self.mode, Mode::WithGil))
    }

    /// The command that runs the matrix's program.
    pub(crate) fn command(&self) -> Command {
        let script = matrix::script();
        let (mut command, jit) = match &self.mode {
            Mode::Plain | Mode::WithGil => (self.build.command(&script), "0"),
            Mode::Jit => (self.build.command(&script), "1"),
            Mode::Embedded(embedding) => (embedding.command(&script), "0"),
        };
        if let Mode::WithGil = self.mode {
            command.env("PYTHON_GIL", "1");
        }
        command.env("PYTHON_JIT", jit);
        command
    }
}

impl fmt::Display for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.build)?;
        match &self.mode {
            Mode::Plain => Ok(()),
            Mode::Jit => write!(f, " with its JIT on"),
            Mode::WithGil => write!(f, " with its GIL on"),
            Mode::Embedded(embedding) => write!(f, ", {}", embedding.how()),
        }
    }
}

/// The interpreters that a test is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// All of a minor version, as they come.
    Version(u8, u8),
    /// Those without a GIL.
    FreeThreaded,
    /// Those with a JIT compiler, switched on.
    Jit,
    /// Those that programs of another language have in them.
    Embedded,
}

impl Wanted {
    /// Those of this machine. When there is none, the reason.
    pub(crate) fn interpreters(self) -> Result<Vec<Interpreter>, String> {
        let found: Vec<_> = pythons().iter().flat_map(|build| self.of_build(build)).collect();
        if found.is_empty() { Err(self.reason()) } else { Ok(found) }
    }

    fn of_build(self, build: &'static PythonBuild) -> Vec<Interpreter> {
        let modes = match self {
            Self::Version(..) if build.free_threaded => Vec::new(),
            Self::Version(major, minor) if build.minor() == (major, minor) => vec![Mode::Plain],
            Self::FreeThreaded if build.free_threaded => vec![Mode::Plain, Mode::WithGil],
            // A container makes no difference to a JIT.
            Self::Jit if build.has_jit && build.form != Form::Container => vec![Mode::Jit],
            Self::Embedded => Embedding::for_build(build).unwrap().into_iter().map(Mode::Embedded).collect(),
            _ => Vec::new(),
        };
        modes.into_iter().map(|mode| Interpreter { build, mode }).collect()
    }

    fn reason(self) -> String {
        match self {
            Self::Version(major, minor) => absence((major, minor)),
            Self::FreeThreaded => "this machine has no free-threaded Python, and Debian packages none: \
                `cargo xtask pythons --build` builds one from Debian's source"
                .to_owned(),
            Self::Jit => "no Python of this machine has a JIT compiler: run `cargo xtask pythons`".to_owned(),
            Self::Embedded => {
                "no Python of this machine has a shared library: install libpython3.11, or build one \
                with pyenv and --enable-shared"
                    .to_owned()
            }
        }
    }
}
