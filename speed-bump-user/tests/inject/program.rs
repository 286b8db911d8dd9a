//! A Python program that prints lines for as long as it goes on.

#![allow(dead_code, clippy::unwrap_used, unreachable_pub, missing_docs)]

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use speed_bump_testing::{PythonBuild, wait::PATIENCE};
use speed_bump_user::process::Process;

use super::support;

pub struct Program {
    pub child: Child,
    pub process: Process,
    lines: Mutex<Receiver<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Program {
    pub fn start(python: &PythonBuild, script: &str) -> Self {
        let mut command = python.interpreter();
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            while let Some(Ok(line)) = output.next()
                && sender.send(line).is_ok()
            {}
        });
        let process = support::open(child.id().cast_signed());
        let program = Self { child, process, lines: Mutex::new(lines), reader: Some(reader) };
        program.line();
        program
    }

    /// The next line.
    pub fn line(&self) -> String {
        self.next().unwrap()
    }

    fn next(&self) -> Result<String, RecvTimeoutError> {
        self.lines.lock().unwrap().recv_timeout(PATIENCE)
    }

    /// Forgets the lines that it has printed already.
    pub fn skip_lines(&self) {
        std::thread::sleep(Duration::from_millis(5));
        while self.lines.lock().unwrap().try_recv().is_ok() {}
    }

    /// Whether it prints on.
    pub fn prints(&self) -> Result<(), RecvTimeoutError> {
        // What is in the pipe already shows nothing.
        self.skip_lines();
        (0..3).try_for_each(|_| self.next().map(drop))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
    }
}
