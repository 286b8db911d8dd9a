//! The CPythons of this machine: the system's, pyenv's, and those that `cargo xtask pythons` fetched or
//! built.
//!
//! What an interpreter can do is found by asking it, once per test process. One that is there and does not
//! start is an error. Versions that tests need and that are not there are recorded as skipped.

use std::{
    collections::BTreeSet,
    env, fmt, fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Once, OnceLock},
};

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};
use serde::Deserialize;

use crate::{
    places,
    skip::{self, Skip},
};

/// The minor versions of Python 3 that the tests are about, unless [`WANTED_VARIABLE`] names others.
const WANTED: RangeInclusive<u8> = 8..=15;
/// The oldest version to search for: unit tests read files of versions that the tool does not support.
const OLDEST: (u8, u8) = (3, 6);
/// Where fewer Pythons are to be had, as in virtual machines, this names those: `3.11 3.13`.
pub const WANTED_VARIABLE: &str = "SPEED_BUMP_PYTHONS_WANTED";

/// Where an interpreter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// `/usr/bin/python3`.
    System,
    /// `~/.pyenv/versions/…`.
    Pyenv,
    /// `target/pythons/…`, from Debian's newer suites.
    Debian,
    /// `target/pythons/…`, built from source.
    Source,
}

/// How an interpreter is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// Like any program.
    Direct,
    /// Through its own dynamic loader, as the system's C library is too old: `/proc/PID/exe` names that
    /// loader, and the interpreter is one of the files that the process maps.
    Loader,
    /// In a mount namespace and root folder of its own, as in a container: its paths mean other files to the
    /// host, its `/tmp` is its own, and the host's root lies at `/host`. Only root can.
    Container,
}

/// One way to run one interpreter.
#[derive(Clone, Debug)]
pub struct PythonBuild {
    /// Major, minor and micro version.
    pub version: (u8, u8, u8),
    /// The version as the interpreter writes it: `3.15.0rc2`.
    pub version_text: String,
    /// Where it comes from.
    pub origin: Origin,
    /// How it is run.
    pub form: Form,
    /// Whether the file that holds the interpreter has the USDT probe `python:function__entry`.
    pub has_usdt: bool,
    /// Whether `-X perf` and `sys.activate_stack_trampoline("perf")` work.
    pub trampolines: bool,
    /// Whether it runs without the GIL.
    pub free_threaded: bool,
    /// Whether it has a JIT compiler, on or off.
    pub has_jit: bool,
    /// The file with the interpreter's code, on the host: libpython, or the executable where that is static.
    pub library: PathBuf,
    program: PathBuf,
}

impl PythonBuild {
    /// Major and minor version.
    pub fn minor(&self) -> (u8, u8) {
        (self.version.0, self.version.1)
    }

    /// Whether `python:function__entry` fires for plain functions. In 3.11 it fires for generators only, and
    /// 3.12 to 3.14 do without it.
    pub fn usdt_fires(&self) -> bool {
        self.has_usdt && !((3, 11)..(3, 15)).contains(&self.minor())
    }

    /// What is run: an executable, or a script that runs one.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The same interpreter in a copy of its folder.
    pub(crate) fn moved(&self, from: &Path, to: &Path) -> Self {
        let moved =
            |path: &Path| path.strip_prefix(from).map_or_else(|_| path.to_owned(), |rest| to.join(rest));
        Self { program: moved(&self.program), library: moved(&self.library), ..self.clone() }
    }

    /// The command that runs it, to which a caller adds arguments.
    pub fn interpreter(&self) -> Command {
        Command::new(&self.program)
    }

    /// The command that runs a script of the host.
    pub fn command(&self, script: &Path) -> Command {
        self.command_with::<&str>(&[], script)
    }

    /// The command that runs a script of the host, with options for the interpreter (`-X`, `perf`).
    pub fn command_with<S: AsRef<std::ffi::OsStr>>(&self, options: &[S], script: &Path) -> Command {
        let mut command = self.interpreter();
        command.args(options).arg(self.inside(script));
        command
    }

    /// An absolute path of the host as the running interpreter sees it; what `co_filename` will say.
    pub fn inside(&self, path: &Path) -> PathBuf {
        match self.form {
            Form::Container => Path::new("/host").join(path.strip_prefix("/").unwrap_or(path)),
            Form::Direct | Form::Loader => path.to_owned(),
        }
    }
}

impl fmt::Display for PythonBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, micro) = self.version;
        let origin = match self.origin {
            Origin::System => "system",
            Origin::Pyenv => "pyenv",
            Origin::Debian => "Debian",
            Origin::Source => "source",
        };
        write!(f, "Python {major}.{minor}.{micro} ({origin}")?;
        if self.free_threaded {
            write!(f, ", free-threaded")?;
        }
        match self.form {
            Form::Direct => write!(f, ")"),
            Form::Loader => write!(f, ", own loader)"),
            Form::Container => write!(f, ", container)"),
        }
    }
}

/// All interpreters from 3.8 on, oldest first. Empty where there is none: a test then says that it is
/// skipped.
///
/// # Panics
/// When one that is there does not start: what is broken is not absent.
#[allow(clippy::panic, reason = "fails every test that is about Pythons")]
pub fn pythons() -> &'static [PythonBuild] {
    static MISSING: Once = Once::new();
    let found = find().unwrap_or_else(|error| panic!("{error:#}"));
    MISSING.call_once(|| report_missing(found));
    found
}

/// The same for what is no test: nothing is recorded as skipped.
///
/// # Errors
/// One that is there does not start.
pub fn find() -> Result<&'static [PythonBuild]> {
    let found = find_of_any_age()?;
    Ok(&found[found.partition_point(|python| python.minor() < (3, 8))..])
}

/// The same with the versions that the tool refuses.
///
/// # Errors
/// One that is there does not start.
pub fn find_of_any_age() -> Result<&'static [PythonBuild]> {
    static FOUND: OnceLock<Result<Vec<PythonBuild>, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mut found = Vec::new();
        for (origin, form, program) in candidates() {
            let path = program.display().to_string();
            let python = examine(origin, form, program);
            let python =
                python.with_context(|| format!("{path} is there and does not work: mend or remove it"));
            found.extend(python.map_err(|error| format!("{error:#}"))?);
        }
        found.retain(|python| python.minor() >= OLDEST);
        found.sort_by_key(|python| (python.version, python.origin, python.form));
        Ok(found)
    });
    match found {
        Ok(found) => Ok(found),
        Err(error) => bail!("{error}"),
    }
}

/// Why nothing runs on a version that is not here, with the way out.
pub fn absence((major, minor): (u8, u8)) -> String {
    let way_out = match minor {
        13.. => "run `cargo xtask pythons`",
        _ => "pyenv can install one",
    };
    format!("this machine has no Python {major}.{minor}: {way_out}")
}

/// Records the wanted versions that are not here: no test of this program runs on them.
fn report_missing(found: &[PythonBuild]) {
    let named = env::var(WANTED_VARIABLE).ok();
    let wanted: Vec<u8> = match &named {
        Some(names) => {
            names.split_whitespace().filter_map(|name| name.strip_prefix("3.")?.parse().ok()).collect()
        }
        None => WANTED.collect(),
    };
    for minor in wanted.into_iter().map(|minor| (3, minor)) {
        if !found.iter().any(|python| python.minor() == minor) {
            skip::report(&Skip {
                test: skip::program(),
                case: Some(format!("Python {}.{}", minor.0, minor.1)),
                reason: absence(minor),
            });
        }
    }
}

/// The first interpreter of a minor version that is run in one of these forms.
pub fn python(minor: (u8, u8), forms: &[Form]) -> Option<&'static PythonBuild> {
    pythons().iter().find(|python| python.minor() == minor && forms.contains(&python.form))
}

fn candidates() -> Vec<(Origin, Form, PathBuf)> {
    let mut found = vec![(Origin::System, Form::Direct, PathBuf::from("/usr/bin/python3"))];
    let pyenv = env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    if let Some(pyenv) = pyenv {
        for folder in folders(&pyenv.join("versions")) {
            found.push((Origin::Pyenv, Form::Direct, folder.join("bin/python3")));
        }
    }
    for folder in folders(&places::fetched_pythons()) {
        found.push((Origin::Source, Form::Direct, folder.join("bin/python3")));
        found.push((Origin::Debian, Form::Loader, folder.join("python")));
        if rustix::process::geteuid().is_root() {
            found.push((Origin::Debian, Form::Container, folder.join("container")));
        }
    }
    found.retain(|(_, _, program)| program.is_file());
    found
}

/// The folders in a folder, links left out: pyenv keeps aliases as links.
fn folders(of: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

#[derive(Deserialize)]
struct Answer {
    implementation: String,
    version: (u8, u8, u8),
    version_text: String,
    trampolines: bool,
    free_threaded: bool,
    has_jit: bool,
    files: Vec<PathBuf>,
}

/// The interpreter's description of itself: one JSON object. Runs on every Python 3.
const QUESTION: &str = r#"
import json, sys, sysconfig
def trampolines():
    try:
        sys.activate_stack_trampoline("perf")
        sys.deactivate_stack_trampoline()
        return True
    except (AttributeError, ValueError, RuntimeError):
        return False
with open("/proc/self/maps") as maps:
    mapped = [line.split(None, 5)[5].rstrip("\n") for line in maps if " r-xp " in line and "/" in line]
jit = getattr(sys, "_jit", None)
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": sys.version_info[:3],
    "version_text": sys.version.split()[0],
    "trampolines": trampolines(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "has_jit": bool(jit and jit.is_available()),
    "files": [path for path in mapped if "python" in path.rsplit("/", 1)[1]],
}))
"#;

/// What an interpreter says of itself; `None` for one that is no CPython.
fn examine(origin: Origin, form: Form, program: PathBuf) -> Result<Option<PythonBuild>> {
    let Some(answer) = ask(&mut Command::new(&program))? else { return Ok(None) };
    let on_host = |path: &PathBuf| match (form, program.parent()) {
        (Form::Container, Some(folder)) => folder.join("root").join(path.strip_prefix("/").unwrap_or(path)),
        _ => path.clone(),
    };
    // libpython holds the code where there is one; else the executable does.
    let is_library = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libpython"))
    };
    let library = answer.files.iter().find(is_library).or(answer.files.first()).map(on_host);
    let library = library.context("it maps no file that is named after Python")?;
    Ok(Some(PythonBuild {
        version: answer.version,
        version_text: answer.version_text,
        origin,
        form,
        has_usdt: has_function_entry(&library),
        trampolines: answer.trampolines,
        free_threaded: answer.free_threaded,
        has_jit: answer.has_jit,
        library,
        program,
    }))
}

/// What a CPython answers.
fn ask(interpreter: &mut Command) -> Result<Option<Answer>> {
    let output = interpreter.args(["-I", "-c", QUESTION]).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let answer: Answer = serde_json::from_slice(&output.stdout).context("it answers nonsense")?;
    Ok((answer.implementation == "cpython").then_some(answer))
}

/// Whether the file's USDT notes name `python:function__entry`.
fn has_function_entry(file: &Path) -> bool {
    let Ok(bytes) = fs::read(file) else { return false };
    let Ok(elf) = object::File::parse(bytes.as_slice()) else { return false };
    let Some(notes) = elf.section_by_name(".note.stapsdt") else { return false };
    let wanted = b"python\0function__entry\0";
    notes.data().is_ok_and(|data| data.windows(wanted.len()).any(|window| window == wanted))
}

#[cfg(test)]
mod tests;
