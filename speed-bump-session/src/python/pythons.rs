//! For tests: processes of the CPythons on this machine.

#![allow(clippy::unwrap_used)]

use std::{
    fmt,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use speed_bump_testing::{
    PythonBuild,
    pythons::{self, Form},
    skip,
};

use super::version::PythonVersion;
use crate::units::Pid;

/// An interpreter on this machine that sees the same files as we do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Python {
    build: &'static PythonBuild,
}

impl fmt::Display for Python {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.build.fmt(f)
    }
}

impl Python {
    pub(crate) fn minor(&self) -> u8 {
        self.parsed().minor
    }

    /// The version as text, such as `3.13.0`.
    pub(crate) fn version(&self) -> &'static str {
        self.build.version_text.trim_end_matches('+')
    }

    pub(crate) fn parsed(&self) -> PythonVersion {
        PythonVersion::from_text(self.version()).unwrap()
    }

    pub(crate) fn is_free_threaded(&self) -> bool {
        self.build.free_threaded
    }

    pub(crate) fn command(&self) -> Command {
        self.build.interpreter()
    }

    /// Starts a program and waits until it has printed its first line.
    pub(crate) fn start(&self, options: &[&str], program: &str) -> Running {
        let mut command = self.command();
        command.args(options).args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The process gets a process group of its own, so that a failing test ends all of it.
        let mut child = command.process_group(0).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{self}: ended before it was ready");
        Running { child, output, line: line.trim_end().to_owned() }
    }
}

/// A process that the end of the test also ends.
pub(crate) struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    /// The line that the process printed last.
    pub(crate) line: String,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::new(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// Sends a line and waits for an answer of one line.
    pub(crate) fn ask(&mut self, question: &str) -> &str {
        use std::io::Write as _;
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{question}").unwrap();
        input.flush().unwrap();
        self.line.clear();
        self.output.read_line(&mut self.line).unwrap();
        assert!(!self.line.is_empty(), "the program ended instead of answering `{question}`");
        self.line.truncate(self.line.trim_end().len());
        &self.line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One interpreter of every version, the oldest first. Reports a skip if there is none.
pub(crate) fn all() -> Vec<Python> {
    // This call reports which of the wanted versions are missing.
    let _ = pythons::pythons();
    let found = pythons::find_of_any_age().unwrap().iter().filter(|build| build.form != Form::Container);
    let mut found: Vec<_> = found.map(|build| Python { build }).collect();
    found.dedup_by_key(|python| (python.version(), python.is_free_threaded()));
    if found.is_empty() {
        skip!("this machine has no Python 3.8 or newer");
    }
    found
}

/// The interpreters that write perf maps. Reports a skip if there is none.
pub(crate) fn with_trampolines() -> Vec<Python> {
    let mut pythons = all();
    pythons.retain(|python| python.build.trampolines);
    if pythons.is_empty() {
        skip!("no Python has perf trampolines here: run `cargo xtask pythons`");
    }
    pythons
}

/// The interpreters from a version on. Reports a skip if there is none.
pub(crate) fn from(major: u8, minor: u8) -> Vec<Python> {
    let mut pythons = all();
    pythons.retain(|python| python.parsed().is_at_least(major, minor));
    if pythons.is_empty() {
        skip!("this machine has no Python {major}.{minor} or newer");
    }
    pythons
}
