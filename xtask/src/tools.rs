//! Programs of others that checks run, in pinned versions: another version may find something else.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};
use speed_bump_testing::places;

use crate::{shell, system};

/// A program that cargo builds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// The crate, and the program.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Its output for the version.
    pub(crate) says: &'static str,
    /// Arguments for cargo besides.
    pub(crate) features: &'static [&'static str],
}

impl Tool {
    /// The program on `PATH`, or our own build, which is made if it is missing.
    pub(crate) fn ensure(&self) -> Result<PathBuf> {
        let Self { name, version, .. } = self;
        let root = places::target().join("tools").join(format!("{name}-{version}"));
        let own = root.join("bin").join(name);
        let on_path = system::find_program(name);
        if let Some(found) = [Some(own.clone()), on_path].into_iter().flatten().find(|path| self.is(path)) {
            return Ok(found);
        }
        eprintln!("building {name} {version}; this takes a minute or more, once");
        shell::run(
            shell::cargo()
                // Without optimisation it builds in a third of the time, and works in seconds.
                .args(["install", name, "--version", version, "--locked", "--debug", "--root"])
                .arg(&root)
                .args(self.features)
                .env("CARGO_PROFILE_DEV_DEBUG", "0"),
        )?;
        if !self.is(&own) {
            bail!("{} is not {name} {version}", own.display());
        }
        Ok(own)
    }

    fn is(&self, program: &Path) -> bool {
        shell::output(Command::new(program).arg("--version")).is_ok_and(|said| said.trim() == self.says)
    }
}
