//! Builds the kernel module in kmod/ for a kernel of the guests: in a root of the kernel's own Debian
//! release, with that release's compiler, since the headers' programs need its C library.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::places as tree;

use super::{
    kernel::{Kernel, Series},
    places,
};
use crate::{
    debian::{self, Archive},
    shell,
};

/// Packages for the build besides the headers and what they depend on: compilers among others.
const PACKAGES: [&str; 8] = ["coreutils", "dash", "findutils", "gcc", "grep", "make", "mawk", "sed"];
/// Where the root has the module's sources.
const BUILD: &str = "build";
const MODULE: &str = "speed_bump.ko";

/// Mounts what compilers need, in a mount namespace of its own, and runs a command in the root.
const INSIDE: &str =
    "mount --rbind /dev \"$0/dev\" && mount -t proc proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";

/// Builds the module for a kernel, unless it is built; with `update` in a root made anew. Returns its path.
pub(super) fn ensure(series: &Series, kernel: &Kernel, update: bool) -> Result<PathBuf> {
    let root = places::module(series).join(format!("root-{}", kernel.release));
    if update || !root.is_dir() {
        make_root(series, kernel, &root)?;
    }
    let sources = sources(&tree::root().join("kmod"))?;
    let build = root.join(BUILD);
    let module = build.join(MODULE);
    let is_unchanged =
        |(name, text): (&PathBuf, &Vec<u8>)| fs::read(build.join(name)).is_ok_and(|old| old == *text);
    if module.is_file() && sources.iter().all(is_unchanged) {
        return Ok(module);
    }
    if build.exists() {
        fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    }
    fs::create_dir_all(&build).with_context(|| format!("cannot make {}", build.display()))?;
    for (name, text) in &sources {
        fs::write(build.join(name), text).with_context(|| format!("cannot write {}", name.display()))?;
    }
    eprintln!("building kmod/ for Linux {}", kernel.release);
    let headers = format!("KDIR=/usr/src/linux-headers-{}", kernel.release);
    let built = shell::output(
        Command::new("unshare")
            .args(["--mount", "sh", "-c", INSIDE])
            .arg(&root)
            .args(["make", "-C", &format!("/{BUILD}"), &headers])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
    );
    if let Err(error) = built {
        // Otherwise the old module would count as built the next time.
        let _ = fs::remove_file(&module);
        return Err(error);
    }
    Ok(module)
}

fn make_root(series: &Series, kernel: &Kernel, root: &Path) -> Result<()> {
    let folder = places::module(series);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let archive = Archive::open(&folder.join("apt"), &series.suites())?;
    let headers = format!("linux-headers-{}", kernel.release);
    let packages = [&[headers.as_str()], &PACKAGES[..]].concat();
    let Some(packages) = archive.download(&packages)? else {
        bail!("Debian has no {headers} any more: fetch the newest kernel with --update")
    };
    // We build in another folder and rename it at the end, so that an interrupted run leaves nothing that
    // looks complete.
    let work = tempfile::Builder::new().prefix(".new-").tempdir_in(&folder)?;
    debian::prepare(work.path(), &["proc", "dev", "tmp"])?;
    debian::extract(&packages, work.path())?;
    archive.clean()?;
    // As the alternatives system would have it.
    symlink("mawk", work.path().join("usr/bin/awk")).context("cannot link awk")?;
    // With this file, the module would get type information, which needs another program and which nothing
    // reads.
    let _ = fs::remove_file(work.path().join(format!("usr/src/{headers}/vmlinux")));
    fs::rename(work.path(), root).with_context(|| format!("cannot move to {}", root.display()))
}

/// The module's sources.
fn sources(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut sources = BTreeMap::new();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = PathBuf::from(path.file_name().unwrap_or_default());
        let is_source = name.extension().is_some_and(|extension| extension == "c" || extension == "h")
            && !name.to_string_lossy().ends_with(".mod.c");
        if is_source || ["Kbuild", "Makefile"].iter().any(|file| name.as_os_str() == *file) {
            let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            sources.insert(name, text);
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_the_module_is_made_of_is_found() {
        let sources = sources(&tree::root().join("kmod")).unwrap();
        for name in ["Kbuild", "Makefile", "main.c", "targets.h"] {
            assert!(sources.contains_key(Path::new(name)), "{name}");
        }
        assert!(sources.keys().all(|name| name.extension().is_none_or(|e| e != "ko" && e != "md")));
    }
}
