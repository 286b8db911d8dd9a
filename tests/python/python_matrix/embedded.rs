//! Programs of another language with an interpreter in them: `tests/fixtures/embed.c`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use speed_bump_testing::{Fixture, PythonBuild, places, pythons::Origin};

/// A program with an interpreter in it.
#[derive(Debug)]
pub(crate) struct Embedding {
    fixture: Fixture,
    library: Option<PathBuf>,
}

impl Embedding {
    /// The programs for an interpreter: one that is linked with its libpython, and one that loads it as it
    /// runs. None where the interpreter has no shared library.
    pub(crate) fn for_build(build: &PythonBuild) -> anyhow::Result<Vec<Self>> {
        let Some(library) = shared_library(build) else { return Ok(Vec::new()) };
        let source = places::fixtures().join("embed.c");
        let path = library.to_string_lossy();
        let search = format!("-Wl,-rpath,{}", library.parent().unwrap_or(Path::new("/")).display());
        let linked = Fixture::compile(&source, &["-pthread", "-Wl,--no-as-needed", &path, &search])?;
        let loading = Fixture::compile(&source, &["-pthread", "-ldl"])?;
        Ok(vec![Self { fixture: linked, library: None }, Self { fixture: loading, library: Some(library) }])
    }

    /// How the program came by its libpython.
    pub(crate) fn how(&self) -> &'static str {
        if self.library.is_some() { "embedded, loaded as it runs" } else { "embedded, linked" }
    }

    /// The command that runs a script.
    pub(crate) fn command(&self, script: &Path) -> Command {
        let mut command = Command::new(self.fixture.program());
        command.arg(self.library.as_deref().unwrap_or(Path::new("-"))).arg(script);
        command
    }
}

/// The shared libpython of an interpreter, if it has one that programs of this system can use.
fn shared_library(build: &PythonBuild) -> Option<PathBuf> {
    let name = format!("libpython{}.{}.so.1.0", build.version.0, build.version.1);
    let is_it = |path: &PathBuf| path.ends_with(&name) && path.is_file();
    match build.origin {
        // Those of newer suites need a newer C library than a program that is compiled here.
        Origin::Debian => None,
        // Debian's executable is static. The library, another package, lies in a folder named for the
        // architecture.
        Origin::System => {
            fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join(&name)).find(is_it)
        }
        Origin::Pyenv | Origin::Source => Some(build.library.clone()).filter(is_it),
    }
}
