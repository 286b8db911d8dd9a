//! `cargo xtask kmod`: the kernel module in kmod/, built against the headers of Debian's kernels, without
//! booting them.

use anyhow::{Result, bail};
use clap::Args;

use crate::vm;

#[derive(Args)]
pub(crate) struct Options {
    /// Fetch newer headers and compilers, even if some are there.
    #[arg(long)]
    update: bool,
}

/// Builds the module for each kernel that its tests run on; fails when one build does.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("`cargo xtask kmod` builds in root folders of Debian's, which needs root (chroot and mounts)");
    }
    let mut failures = Vec::new();
    for (name, built) in vm::build_modules(options.update) {
        match built {
            Ok(module) => println!("kmod/ for Linux {name}: {}", module.display()),
            Err(error) => failures.push(format!("kmod/ for Linux {name}: {error:#}")),
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}
