//! The CPythons of this machine: the system's, pyenv's, and those that `cargo xtask pythons` fetched or built.
//!
//! What an interpreter can do is asked of the interpreter itself, once a test process.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use object::{Object as _, ObjectSection as _};
use serde::Deserialize;

use crate::places;

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
    /// Through its own dynamic loader, as the system's C library is too old: `/proc/PID/exe` names that loader,
    /// and the interpreter is one of the files that the process maps.
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

/// All interpreters from 3.8 on, oldest first. Empty where there is none: a test then says that it is skipped.
pub fn pythons() -> &'static [PythonBuild] {
    static PYTHONS: OnceLock<Vec<PythonBuild>> = OnceLock::new();
    PYTHONS.get_or_init(|| {
        let mut found: Vec<_> = candidates()
            .into_iter()
            .filter_map(|(origin, form, program)| examine(origin, form, program))
            .filter(|python| python.minor() >= (3, 8))
            .collect();
        found.sort_by_key(|python| (python.version, python.origin, python.form));
        found
    })
}

/// The first interpreter of a minor version that is run in one of these forms.
pub fn python(minor: (u8, u8), forms: &[Form]) -> Option<&'static PythonBuild> {
    pythons().iter().find(|python| python.minor() == minor && forms.contains(&python.form))
}

fn candidates() -> Vec<(Origin, Form, PathBuf)> {
    let mut found = vec![(Origin::System, Form::Direct, PathBuf::from("/usr/bin/python3"))];
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
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
    version: (u8, u8, u8),
    trampolines: bool,
    free_threaded: bool,
    has_jit: bool,
    files: Vec<PathBuf>,
}

/// What the interpreter says of itself: one JSON object. Runs on every Python 3.
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
    "version": sys.version_info[:3],
    "trampolines": trampolines(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "has_jit": bool(jit and jit.is_available()),
    "files": [path for path in mapped if "python" in path.rsplit("/", 1)[1]],
}))
"#;

fn examine(origin: Origin, form: Form, program: PathBuf) -> Option<PythonBuild> {
    let output = Command::new(&program).args(["-I", "-c", QUESTION]).stdin(Stdio::null()).output().ok()?;
    let answer: Answer = serde_json::from_slice(&output.stdout).ok()?;
    let on_host = |path: &PathBuf| match (form, program.parent()) {
        (Form::Container, Some(folder)) => folder.join("root").join(path.strip_prefix("/").unwrap_or(path)),
        _ => path.clone(),
    };
    // libpython holds the code where there is one; else the executable does.
    let is_library = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libpython"))
    };
    let library = answer.files.iter().find(is_library).or(answer.files.first()).map(on_host)?;
    Some(PythonBuild {
        version: answer.version,
        origin,
        form,
        has_usdt: has_function_entry(&library),
        trampolines: answer.trampolines,
        free_threaded: answer.free_threaded,
        has_jit: answer.has_jit,
        library,
        program,
    })
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn interpreters_say_what_the_table_says_of_them() {
        if pythons().is_empty() {
            return crate::skip!("this machine has no Python 3.8 or newer");
        }
        for python in pythons() {
            let mut command = python.interpreter();
            let output = command.args(["-c", "import sys; print(*sys.version_info[:3], sep='.')"]).output();
            let said = String::from_utf8(output.unwrap().stdout).unwrap();
            let (major, minor, micro) = python.version;
            assert_eq!(said.trim(), format!("{major}.{minor}.{micro}"), "{python}");
            assert!(python.library.is_file(), "{python}: {}", python.library.display());
            assert!(!python.trampolines || python.minor() >= (3, 12), "{python}");
        }
    }

    #[test]
    fn a_container_sees_other_paths_than_the_host() {
        let Some(python) = pythons().iter().find(|python| python.form == Form::Container) else {
            return crate::skip!("no fetched Python, or not root: run `cargo xtask pythons` as root");
        };
        let script = places::fixtures().join("service.py");
        let mut service = crate::Service::start(python.command(&script).arg("0")).unwrap();
        let seen = fs::read_link(format!("/proc/{}/exe", service.pid())).unwrap();
        assert!(seen.starts_with("/usr/bin"), "{}", seen.display());
        let root = PathBuf::from(format!("/proc/{}/root", service.pid()));
        assert!(root.join("host").join(script.strip_prefix("/").unwrap()).is_file());
        assert!(!root.join(script.strip_prefix("/").unwrap()).exists());
        service.ask("report").unwrap();
    }
}
