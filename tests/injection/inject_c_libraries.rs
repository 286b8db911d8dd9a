//! C libraries other than a glibc of today: one with `dlopen` in a library of its own, and musl.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use speed_bump_testing::{Lines, PythonBuild, pythons, skip};

use crate::support;

struct Running(Child, Lines);

impl Running {
    /// Starts a program and waits for its first line.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::read(child.stdout.take().unwrap());
        let running = Self(child, lines);
        running.1.line().unwrap();
        running
    }

    /// Loaded once, and found again.
    fn takes_the_helper_twice(&self, image: &[u8]) {
        let process = support::open(self.0.id().cast_signed());
        for round in 0..2 {
            let limits = speed_bump_session::inject::Limits::default();
            let injected = support::inject_with(&process, image, 0, limits).unwrap();
            assert_eq!(injected.fresh, round == 0);
            support::check_and_leave(&process, &injected);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first version of glibc that has everything in one library.
const ONE_LIBRARY: (u32, u32) = (2, 34);

/// The version of glibc that an interpreter runs with.
fn glibc(python: &PythonBuild) -> Option<(u32, u32)> {
    let ask = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))";
    let output = python.interpreter().args(["-c", ask]).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[test]
fn a_glibc_of_several_libraries() {
    let is_old = |python: &&PythonBuild| glibc(python).is_some_and(|version| version < ONE_LIBRARY);
    let Some(python) = pythons().iter().find(is_old) else {
        return skip!(
            "no Python of this machine runs with a glibc before 2.34, as Debian 11's does: run `cargo xtask \
             pythons`"
        );
    };
    let script = "import time\nprint(flush=True)\nwhile 1: time.sleep(0.01)";
    let running = Running::start(python.interpreter().args(["-c", script]));
    let maps = fs::read_to_string(format!("/proc/{}/maps", running.0.id())).unwrap();
    assert!(maps.contains("/libdl"), "{python}: {maps}");
    running.takes_the_helper_twice(support::image());
}

/// No CPython for musl can be had from the places that the tests use, so a C program stands for one.
#[test]
fn musl() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("waiting.c");
    let text = "#include <unistd.h>\nint main(void) { write(1, \"\\n\", 1); for (;;) sleep(1); }";
    fs::write(&source, text).unwrap();
    let program = folder.path().join("waiting");
    let compiled = Command::new("musl-gcc").arg("-o").arg(&program).arg(&source).output();
    let Ok(compiled) = compiled else { return skip!("no musl-gcc (Debian: musl-tools)") };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let helper = folder.path().join("helper.so");
    let image = Command::new("musl-gcc")
        .args(["-shared", "-fPIC", "-O1", "-Wl,--build-id=0x01", "-o"])
        .arg(&helper)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/support/helper.c"))
        .output()
        .unwrap();
    assert!(image.status.success(), "{}", String::from_utf8_lossy(&image.stderr));
    let running = Running::start(&mut Command::new(&program));
    let maps = fs::read_to_string(format!("/proc/{}/maps", running.0.id())).unwrap();
    assert!(!maps.contains("/libc.so.6"), "{maps}");
    running.takes_the_helper_twice(&fs::read(&helper).unwrap());
}
