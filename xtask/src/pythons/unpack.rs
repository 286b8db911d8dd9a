//! Unpacking packages into a root folder, and the launchers beside it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use crate::debian;

/// The file that marks a complete folder; it lists the packages.
const STAMP: &str = "packages.txt";

/// Runs the interpreter through the root's own loader. This needs no privileges. The interpreter sees the
/// host's files, and `/proc/PID/exe` is the loader.
const LAUNCH_WITH_LOADER: &str = r#"#!/bin/sh
root=$(dirname -- "$(readlink -f -- "$0")")/root
exec "$root/@LOADER@" --library-path "$root/@LIBRARIES@" "$root/usr/bin/@PYTHON@" "$@"
"#;

/// Runs the interpreter as in a container: own mounts, own root, own /tmp; the host's root at /host. The
/// process keeps its PID throughout.
const LAUNCH_IN_CONTAINER: &str = r#"#!/bin/sh
root=$(dirname -- "$(readlink -f -- "$0")")/root
exec unshare --mount --propagation private /bin/sh -ec '
    cd "$1"
    shift
    mount --bind . .
    cd "$PWD"
    mount --rbind /proc proc
    mount --rbind /dev dev
    mount -t tmpfs tmpfs tmp
    pivot_root . host
    cd /
    exec /usr/bin/@PYTHON@ "$@"
' sh "$root" "$@"
"#;

/// Whether this folder has a complete version of Python, and the version includes this package.
pub(super) fn is_complete(folder: &Path, package: &str) -> bool {
    let begin = format!("{package}_");
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|text| text.lines().any(|line| line.starts_with(&begin)))
}

/// Unpacks the packages of a version of Python into `folder/VERSION`, and replaces what was there.
pub(super) fn unpack(folder: &Path, version: &str, packages: &[PathBuf]) -> Result<()> {
    let stamp: String =
        packages.iter().filter_map(|file| file.file_name()).map(|n| format!("{}\n", n.display())).collect();
    let finished = folder.join(version);
    if fs::read_to_string(finished.join(STAMP)).is_ok_and(|text| text == stamp) {
        return Ok(());
    }
    // We unpack into another folder and rename it at the end, so that an interrupted run leaves nothing that
    // looks complete.
    let fresh = folder.join(format!(".new-{version}"));
    remove(&fresh)?;
    let root = fresh.join("root");
    debian::prepare(&root, &["proc", "dev", "sys", "tmp", "host"])?;
    debian::extract(packages, &root)?;
    let python = format!("python{version}");
    if !root.join("usr/bin").join(&python).is_file() {
        bail!("the packages of {python} bring no usr/bin/{python}");
    }
    let libraries = folder_of(&root, "libc.so.6")?;
    // We do not use the loader in lib64. In older Debians it is a link to an absolute path, which here leads
    // out of this root.
    let loader = first_match(&root, &libraries, "ld-linux")?;
    for (name, text) in [("python", LAUNCH_WITH_LOADER), ("container", LAUNCH_IN_CONTAINER)] {
        let text =
            text.replace("@PYTHON@", &python).replace("@LOADER@", &loader).replace("@LIBRARIES@", &libraries);
        let path = fresh.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(fresh.join(STAMP), stamp)?;
    remove(&finished)?;
    fs::rename(&fresh, &finished).with_context(|| format!("cannot move to {}", finished.display()))
}

/// The path, relative to the root, of the file in this folder whose name begins with this prefix.
fn first_match(root: &Path, folder: &str, prefix: &str) -> Result<String> {
    for entry in fs::read_dir(root.join(folder))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) {
            return Ok(format!("{folder}/{name}"));
        }
    }
    bail!("no {prefix}… in {}", root.join(folder).display())
}

/// The folder below usr/lib with this library, relative to the root: usr/lib/x86_64-linux-gnu.
fn folder_of(root: &Path, library: &str) -> Result<String> {
    for entry in fs::read_dir(root.join("usr/lib"))?.flatten() {
        if entry.path().join(library).exists() {
            return Ok(format!("usr/lib/{}", entry.file_name().display()));
        }
    }
    bail!("no {library} in {}", root.display())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
