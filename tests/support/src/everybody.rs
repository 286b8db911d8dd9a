//! Files that every user of this machine can reach: folders, copies of files, and interpreters. The working
//! tree may be below a home that only its owner may enter, and so may the folder for temporary files.

use std::{
    env, fs,
    ops::Deref,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::{
    PythonBuild, pythons,
    pythons::{Form, Origin},
};

/// What others than the owner and the group may do with a file: read it, and execute it or enter it.
const READ: u32 = 0o004;
const ENTER: u32 = 0o001;

/// Where a temporary folder can lie, beside what TMPDIR names.
const PLACES: [&str; 2] = ["/tmp", "/var/tmp"];

/// A temporary folder that every user may enter. It goes when it is dropped.
///
/// # Errors
/// There is no place for one.
pub fn folder() -> Result<TempDir> {
    let places = [env::temp_dir()].into_iter().chain(PLACES.map(PathBuf::from));
    let place = places.into_iter().find(|place| may_enter(place));
    let place = place.context("no folder for temporary files can be entered by every user")?;
    let folder = tempfile::Builder::new().prefix("speed-bump-").tempdir_in(&place);
    let folder = folder.with_context(|| format!("cannot make a folder in {}", place.display()))?;
    // `tempdir` keeps others out.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Whether every user may read this file.
pub fn may_read(path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    has(&path, READ) && path.parent().is_some_and(may_enter)
}

/// Whether every user may enter this folder.
fn may_enter(folder: &Path) -> bool {
    fs::canonicalize(folder).is_ok_and(|folder| folder.ancestors().all(|part| has(part, ENTER)))
}

fn has(path: &Path, permission: u32) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & permission != 0)
}

/// A copy of a file in a folder of its own, which goes when this is dropped.
#[derive(Debug)]
pub struct Copy {
    _folder: TempDir,
    path: PathBuf,
}

impl Copy {
    /// Copies a file of the working tree, such as a script.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn new(file: &Path) -> Result<Self> {
        let folder = folder()?;
        let path = folder.path().join(file.file_name().context("a file has a name")?);
        fs::copy(file, &path).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(Self { _folder: folder, path })
    }

    /// The copy.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An interpreter that every user may run: the machine's own, or a copy of a fetched one.
#[derive(Debug)]
pub struct Python {
    build: PythonBuild,
    _folder: Option<TempDir>,
}

impl Deref for Python {
    type Target = PythonBuild;

    fn deref(&self) -> &PythonBuild {
        &self.build
    }
}

/// The reason for a skip if there is none.
pub const NO_PYTHON: &str =
    "no such Python of this machine can be run by every user: run `cargo xtask pythons`";

/// An interpreter that every user may run, of those that a test is about: the system's if it can be, else one
/// that lies where everybody may read it, else a copy of one that `cargo xtask pythons` fetched.
///
/// # Errors
/// It cannot be copied.
pub fn python(is_wanted: impl Fn(&PythonBuild) -> bool) -> Result<Option<Python>> {
    // Only root can run one in a container.
    let mut wanted: Vec<_> =
        pythons().iter().filter(|build| build.form != Form::Container && is_wanted(build)).collect();
    wanted.sort_by_key(|build| build.origin != Origin::System);
    if let Some(build) = wanted.iter().find(|build| may_read(&build.library) && may_read(build.program())) {
        return Ok(Some(Python { build: (*build).clone(), _folder: None }));
    }
    let fetched = wanted.into_iter().find(|build| build.form == Form::Loader);
    fetched.map(copy).transpose()
}

/// A copy of a fetched interpreter, whose launcher finds what lies beside it.
fn copy(build: &PythonBuild) -> Result<Python> {
    let from = build.program().parent().context("an interpreter lies in a folder")?;
    let folder = folder()?;
    let to = folder.path().join("python");
    let copied = Command::new("cp").args(["--archive", "--"]).arg(from).arg(&to).output();
    let copied = copied.context("cannot run cp")?;
    if !copied.status.success() {
        bail!("cannot copy {}: {}", from.display(), String::from_utf8_lossy(&copied.stderr));
    }
    Ok(Python { build: build.moved(from, &to), _folder: Some(folder) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::process::CommandExt as _;

    use super::*;
    use crate::skip;

    const NOBODY: u32 = 65_534;

    #[test]
    fn what_is_below_a_folder_of_its_owner_alone_cannot_be_read() {
        let open = folder().unwrap();
        let closed = open.path().join("closed");
        let inside = closed.join("open/file");
        fs::create_dir_all(inside.parent().unwrap()).unwrap();
        fs::write(&inside, "text").unwrap();
        for (mode, expected) in [(0o755, true), (0o711, true), (0o700, false), (0o770, false)] {
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(&inside, fs::Permissions::from_mode(0o644)).unwrap();
            assert_eq!(may_read(&inside), expected, "{mode:o}");
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&inside, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(!may_read(&inside) && !may_read(&open.path().join("absent")));
        let copied = Copy::new(&inside).unwrap();
        assert_eq!(fs::read_to_string(copied.path()).unwrap(), "text");
    }

    #[test]
    fn another_user_runs_a_script_in_each_kind_of_interpreter() {
        if let Some(why) = crate::session::obstacle() {
            return skip!("{why}");
        }
        let folder = folder().unwrap();
        let script = folder.path().join("script.py");
        fs::write(&script, "import json, os\nprint(os.getuid())\n").unwrap();
        let runs = |python: &PythonBuild| {
            let mut command = python.command(&script);
            let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "65534\n", "{python}: {output:?}");
        };
        match python(|_| true).unwrap() {
            Some(python) => {
                runs(&python);
                crate::case_ran!();
            }
            None => return skip!("{NO_PYTHON}"),
        }
        match pythons().iter().find(|build| build.form == Form::Loader) {
            Some(build) => {
                let copied = copy(build).unwrap();
                assert!(may_read(&copied.library) && may_read(copied.program()), "{copied:?}");
                runs(&copied);
            }
            None => crate::skip_case!("a fetched one", "{NO_PYTHON}"),
        }
    }
}
