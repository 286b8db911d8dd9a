//! A uWSGI server: `tests/fixtures/uwsgi.py` with the package that `cargo xtask packages` fetched.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::{
    PythonBuild, Service, places, pythons,
    pythons::Form,
    wait::{PATIENCE, deadline},
};

/// Versions whose package does not enable threads by itself, so that processes keep the interpreter's lock
/// while they wait.
pub const KEEPS_LOCK: std::ops::RangeInclusive<(u8, u8)> = (3, 8)..=(3, 12);

/// The interpreters that the package was fetched for.
pub fn builds() -> Vec<&'static PythonBuild> {
    let is_there = |build: &&PythonBuild| {
        let files = fs::read_dir(places::python_packages(build.minor())).into_iter().flatten().flatten();
        let mut names = files.map(|file| file.file_name());
        names.any(|name| name.to_string_lossy().starts_with("pyuwsgi.cpython"))
    };
    let builds = pythons().iter().filter(|build| build.form == Form::Direct && !build.free_threaded);
    builds.filter(is_there).collect()
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Uwsgi {
    service: Service,
    folder: TempDir,
}

impl Uwsgi {
    /// Starts one with these options, and waits until it answers.
    ///
    /// # Errors
    /// It does not.
    pub fn start(build: &PythonBuild, options: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let mut command = build.command(&places::fixtures().join("uwsgi.py"));
        command.arg(folder.path()).args(options);
        command.env("PYTHONPATH", places::python_packages(build.minor()));
        let server = Self { service: Service::start(&mut command)?, folder };
        let deadline = deadline(PATIENCE);
        while let Err(error) = server.calls(0) {
            if Instant::now() > deadline {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// The master's process id.
    pub fn master(&self) -> i32 {
        self.service.pid()
    }

    /// Has a worker call `work` so many times; the worker's process id.
    ///
    /// # Errors
    /// None answers.
    pub fn calls(&self, number: u32) -> Result<i32> {
        ask(&self.folder.path().join("socket"), number)
    }
}

fn ask(socket: &Path, number: u32) -> Result<i32> {
    let mut stream = UnixStream::connect(socket).context("no uWSGI listens")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /{number} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("no worker of uWSGI answers")?;
    let pid = answer.rsplit("\r\n").next().unwrap_or_default();
    pid.trim().parse().with_context(|| format!("uWSGI answered {answer:?}"))
}
