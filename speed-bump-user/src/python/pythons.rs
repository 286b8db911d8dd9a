//! For tests: the CPythons of this machine, and processes of them.
//!
//! They come from `PATH`, from pyenv's folder, and from `SPEED_BUMP_TEST_PYTHONS`: paths separated by
//! colons, each an interpreter, or a folder that holds a root file system with one in `usr/bin`.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    env, fmt, fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::version::PythonVersion;
use crate::units::Pid;

/// An interpreter that runs here.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    executable: PathBuf,
    /// The root file system it lives in, if not ours.
    pub(crate) root: Option<PathBuf>,
    /// `3.13.0`.
    pub(crate) version: String,
    pub(crate) is_free_threaded: bool,
}

impl fmt::Display for Python {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPython {} ({})", self.version, self.executable.display())
    }
}

impl Python {
    pub(crate) fn minor(&self) -> u8 {
        self.parsed().minor
    }

    pub(crate) fn parsed(&self) -> PythonVersion {
        PythonVersion::from_text(&self.version).unwrap()
    }

    /// A path of the interpreter's as a path of ours.
    pub(crate) fn outside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap()),
            None => path.to_owned(),
        }
    }

    pub(crate) fn command(&self) -> Command {
        let Some(root) = &self.root else { return Command::new(&self.executable) };
        let mut command = Command::new("chroot");
        command.arg(root).arg(&self.executable);
        command
    }

    /// Starts a program and waits until it has printed its first line.
    pub(crate) fn start(&self, options: &[&str], program: &str) -> Running {
        let mut command = self.command();
        command.args(options).args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process group of its own, so that a test that fails takes everything with it.
        let mut child = command.process_group(0).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{self}: ended before it was ready");
        Running { child, output, line: line.trim_end().to_owned() }
    }
}

/// A process that ends with the test.
pub(crate) struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    /// The line it printed last.
    pub(crate) line: String,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::new(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// Sends a line and waits for one.
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

/// One interpreter of every version found, the oldest first; says so if there is none.
pub(crate) fn all() -> Vec<Python> {
    let mut found = BTreeMap::new();
    for (root, executable) in candidates() {
        let mut python = Python { executable, root, version: String::new(), is_free_threaded: false };
        let program = "import sys, sysconfig; print(sys.version.split()[0], sysconfig.get_config_var('Py_GIL_DISABLED'))";
        let Ok(output) = python.command().args(["-I", "-c", program]).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        let mut words = text.split_whitespace();
        python.version = words.next().unwrap_or_default().trim_end_matches('+').to_owned();
        python.is_free_threaded = words.next() == Some("1");
        let Some(version) = PythonVersion::from_text(&python.version) else { continue };
        if version.is_at_least(3, 6) {
            found.entry((version, python.is_free_threaded)).or_insert(python);
        }
    }
    if found.is_empty() {
        speed_bump_testing::skip!("no CPython was found in PATH, pyenv or SPEED_BUMP_TEST_PYTHONS");
    }
    found.into_values().collect()
}

/// Those from a version on; says so if there is none.
pub(crate) fn from(major: u8, minor: u8) -> Vec<Python> {
    let mut pythons = all();
    pythons.retain(|python| python.parsed().is_at_least(major, minor));
    if pythons.is_empty() {
        speed_bump_testing::skip!("no CPython {major}.{minor} or newer was found");
    }
    pythons
}

fn candidates() -> Vec<(Option<PathBuf>, PathBuf)> {
    let mut found = Vec::new();
    let extra = env::var_os("SPEED_BUMP_TEST_PYTHONS").unwrap_or_default();
    for path in env::split_paths(&extra) {
        if path.is_dir() {
            let inside = path.join("usr/bin");
            found.extend(pythons_in(&inside).into_iter().map(|executable| {
                (Some(path.clone()), Path::new("/").join(executable.strip_prefix(&path).unwrap()))
            }));
        } else {
            found.push((None, path));
        }
    }
    let pyenv = env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    for version in pyenv.and_then(|root| fs::read_dir(root.join("versions")).ok()).into_iter().flatten() {
        found.extend(pythons_in(&version.unwrap().path().join("bin")).into_iter().map(|path| (None, path)));
    }
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        // pyenv's shims are scripts.
        if !folder.ends_with("shims") {
            found.extend(pythons_in(&folder).into_iter().map(|path| (None, path)));
        }
    }
    found
}

fn pythons_in(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_python = |name: &String| {
        let minor = name.strip_prefix("python3.").map(|minor| minor.strip_suffix('t').unwrap_or(minor));
        minor.is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit()))
    };
    names.filter(is_python).map(|name| folder.join(name)).collect()
}
