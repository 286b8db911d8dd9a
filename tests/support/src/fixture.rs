//! Compiling a C fixture into a folder of its own, which every user may enter.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::{everybody, places};

/// A compiled C program. Its folder goes when this is dropped.
#[derive(Debug)]
pub struct Fixture {
    folder: TempDir,
    program: PathBuf,
}

impl Fixture {
    /// The C service with its companion library, at `-O2`.
    pub fn service() -> Result<Self> {
        Self::service_with(&["-O2"])
    }

    /// The C service with its companion library, with these compiler flags.
    pub fn service_with(flags: &[&str]) -> Result<Self> {
        Self::service_linked(flags, &[])
    }

    /// The C service with its companion library, with these compiler flags, and more for the service alone.
    pub fn service_linked(flags: &[&str], service_flags: &[&str]) -> Result<Self> {
        let folder = everybody::folder()?;
        let library = folder.path().join("libwork.so");
        compile(&places::fixtures().join("libwork.c"), &library, &[&["-shared", "-fPIC"], flags].concat())?;
        let program = folder.path().join("service");
        let search = format!("-L{}", folder.path().display());
        let link = ["-pthread", &search, "-lwork", "-Wl,-rpath,$ORIGIN"];
        compile(&places::fixtures().join("service.c"), &program, &[flags, service_flags, &link].concat())?;
        Ok(Self { folder, program })
    }

    /// Any C source, compiled with these flags into `program`.
    pub fn compile(source: &Path, flags: &[&str]) -> Result<Self> {
        let folder = everybody::folder()?;
        let program = folder.path().join("program");
        compile(source, &program, flags)?;
        Ok(Self { folder, program })
    }

    /// C source text, compiled with these flags into `program`.
    pub fn compile_text(source: &str, flags: &[&str]) -> Result<Self> {
        let folder = everybody::folder()?;
        let file = folder.path().join("program.c");
        std::fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
        let program = folder.path().join("program");
        compile(&file, &program, flags)?;
        Ok(Self { folder, program })
    }

    /// C++ source text, compiled with these flags into `program`.
    pub fn compile_cpp(source: &str, flags: &[&str]) -> Result<Self> {
        let folder = everybody::folder()?;
        let file = folder.path().join("program.cc");
        std::fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
        let program = folder.path().join("program");
        compile_by("CXX", "g++", &file, &program, flags)?;
        Ok(Self { folder, program })
    }

    /// The compiled program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The folder that holds it, for more files of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The companion library of the service.
    pub fn library(&self) -> PathBuf {
        self.folder().join("libwork.so")
    }
}

/// Copies a program that is to be executed. cp(1) does it: what this process has open for writing is in the
/// children, too, that other threads start meanwhile, and cannot be executed as long as one has it (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let output = Command::new("cp").arg("--").args([from, to]).output().context("cannot run cp")?;
    if !output.status.success() {
        bail!("cp {} {}: {}", from.display(), to.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Compiles one source file with the C compiler, `$CC` or gcc. Libraries among the flags come after the
/// source.
fn compile(source: &Path, output: &Path, flags: &[&str]) -> Result<()> {
    compile_by("CC", "gcc", source, output, flags)
}

/// The same with the compiler that a variable names, or this one.
fn compile_by(variable: &str, usual: &str, source: &Path, output: &Path, flags: &[&str]) -> Result<()> {
    let compiler = std::env::var_os(variable).unwrap_or_else(|| OsString::from(usual));
    let mut command = Command::new(&compiler);
    command.args(["-g", "-Wall", "-Wextra", "-Werror"]).arg(source).args(flags).arg("-o").arg(output);
    let result = command.output().with_context(|| {
        format!("cannot run {compiler:?}: install {usual}, or name a compiler in {variable}")
    })?;
    if !result.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&result.stderr));
    }
    Ok(())
}
