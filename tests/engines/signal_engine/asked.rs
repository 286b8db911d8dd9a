//! A C program that answers lines.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    io::Write as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use speed_bump_testing::Lines;

/// The program. Dropping it kills it.
pub(crate) struct Asked {
    child: Child,
    input: ChildStdin,
    lines: Lines,
}

impl Asked {
    /// Starts it, and waits until it is ready.
    pub(crate) fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let asked = Self { child, input, lines: Lines::read(output) };
        assert_eq!(asked.line(), "ready");
        asked
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The next line.
    pub(crate) fn line(&self) -> String {
        self.lines.line().unwrap()
    }

    /// Sends a line.
    pub(crate) fn say(&mut self, text: &str) {
        writeln!(self.input, "{text}").unwrap();
    }

    /// Its answer to an empty line.
    pub(crate) fn two_numbers(&mut self) -> [u64; 2] {
        self.say("");
        let line = self.line();
        let (first, second) = line.split_once(' ').unwrap();
        [first, second].map(|number| number.parse().unwrap())
    }

    /// Signals that it handles, by /proc/PID/status.
    pub(crate) fn caught(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
