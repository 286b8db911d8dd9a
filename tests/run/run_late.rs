//! `run` of programs with a Python of their own, which they load when they run already: as those that
//! PyInstaller makes. Their first calls are missed, and that is said.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf, process::Command};

use speed_bump_testing::{
    Fixture, PythonBuild, places, pythons,
    pythons::{Form, Origin},
    session::obstacle,
    skip,
};

use crate::{
    command::{run, script},
    turn::beside_others,
};

/// Calls at once, and again when the helper has had the time to come.
const PROGRAM: &str = "\
import time
def early(): pass
def later(): pass
for _ in range(100): early()
time.sleep(4)
for _ in range(50): later()
";
const TARGETS: &str = "*/program.py:early\n*/program.py:later\n";

/// An interpreter with a library that programs of this system can load.
fn with_library() -> Option<(&'static PythonBuild, PathBuf)> {
    pythons().iter().find_map(|build| {
        let name = format!("libpython{}.{}.so.1.0", build.version.0, build.version.1);
        let fits = build.form == Form::Direct && matches!(build.origin, Origin::Pyenv | Origin::Source);
        Some(build.library.clone()).filter(|path| fits && path.ends_with(&name)).map(|path| (build, path))
    })
}

/// Runs the program by this shell command line, in which `$@` loads a Python.
fn says_what_is_missed(line: &str) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some((build, library)) = with_library() else {
        return skip!("this machine has no Python whose library a program can load");
    };
    let _turn = beside_others();
    let fixture = Fixture::compile(&places::fixtures().join("embed.c"), &["-pthread", "-ldl"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = script(folder.path(), "program.py", PROGRAM);
    // As PyInstaller does, in a folder of its own.
    let own = folder.path().join("library.so");
    fs::copy(&library, &own).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh"]).arg(fixture.program()).arg(&own).arg(&program);
    let home = library.parent().and_then(|folder| folder.parent()).unwrap();
    command.env("PYTHONHOME", home);
    let ended = run(TARGETS, &["--delay", "0"], &command);
    assert_eq!(ended.counts(1).0, 50, "{build}: {}", ended.run.stderr);
    if ended.counts(0).0 < 100 {
        let said = "it loaded its Python when it had begun already";
        assert!(ended.run.stderr.contains(said), "{build}: {}", ended.run.stderr);
    }
}

#[test]
fn calls_that_a_program_makes_before_the_helper_is_in_are_told_of() {
    says_what_is_missed("exec \"$@\"");
}

#[test]
fn those_of_a_child_are_told_of_too() {
    says_what_is_missed("\"$@\"; true");
}
