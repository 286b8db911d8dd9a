//! A Python program that prints lines for as long as it goes on.

#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

use std::process::{Child, Stdio};

use anyhow::Result;
use speed_bump_linux::process::Process;
use speed_bump_testing::{Lines, PythonBuild};

use crate::support;

pub struct Program {
    pub child: Child,
    pub process: Process,
    lines: Lines,
}

impl Program {
    /// Starts a script and waits for its first line.
    pub fn start(python: &PythonBuild, script: &str) -> Self {
        Self::start_with(python, script, &[])
    }

    /// The same with arguments.
    pub fn start_with(python: &PythonBuild, script: &str, arguments: &[&str]) -> Self {
        let mut command = python.interpreter();
        command.args(["-c", script]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Lines::read(child.stdout.take().unwrap());
        let process = support::open(child.id().cast_signed());
        let program = Self { child, process, lines };
        program.line();
        program
    }

    /// The next line.
    pub fn line(&self) -> String {
        self.lines.line().unwrap()
    }

    /// Forgets the lines that it has printed already.
    pub fn skip_lines(&self) {
        self.lines.skip();
    }

    /// Whether it prints on.
    pub fn prints(&self) -> Result<()> {
        self.lines.go_on()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
