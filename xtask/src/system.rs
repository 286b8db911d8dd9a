//! Finds programs of this machine, and installs missing ones: with apt as root, else by telling the user what
//! to install.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::root;

/// A program of this machine that a command needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The program, looked up on `PATH`, or an absolute path.
    pub(crate) program: &'static str,
    /// Debian's package that has it.
    pub(crate) package: &'static str,
    /// What the program is for.
    pub(crate) purpose: &'static str,
}

impl Need {
    fn is_met(&self) -> bool {
        find_program(self.program).is_some()
    }
}

/// The path of a program, looked up as a shell would.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Makes sure that all of these are there.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<_> = needs.iter().filter(|need| !need.is_met()).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        eprintln!("missing: {}, {}", need.program, need.purpose);
    }
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    install(&packages)?;
    match missing.iter().find(|need| !need.is_met()) {
        Some(need) => bail!("package {} is installed, and yet there is no {}", need.package, need.program),
        None => Ok(()),
    }
}

fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if !is_debian() {
        bail!(
            "this system has no apt-get: install, by whatever means it has, what Debian's packages \
             {names} bring, and run this again"
        );
    }
    eprintln!("installing {names}");
    root::run(apt_get().arg("update"))
        .and_then(|()| {
            root::run(apt_get().args(["install", "--yes", "--no-install-recommends"]).args(packages))
        })
        .with_context(|| format!("install it yourself, as root: apt-get install {names}"))
}

/// An apt-get that asks nothing and waits for other instances to end.
fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["--quiet", "-o", "DPkg::Lock::Timeout=600"]);
    command
}

/// Whether packages come through apt here.
pub(crate) fn is_debian() -> bool {
    Path::new("/etc/debian_version").exists() && find_program("apt-get").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find_program("sh").is_some_and(|path| path.is_absolute()));
        assert!(find_program("/bin/sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
        assert!(find_program("/no/such/program").is_none());
    }
}
