//! Where things lie in the working tree.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// The root of the working tree.
pub fn root() -> PathBuf {
    // What cargo says now wins over what it said at build time: the tree may have been moved since.
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let is_root = |folder: &&Path| folder.join("Cargo.lock").is_file();
    here.ancestors().find(is_root).unwrap_or(&here).to_owned()
}

/// The folders of the project's own crates: `speed-bump-*`.
///
/// # Errors
/// The root cannot be listed.
pub fn crates() -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(root())? {
        let path = entry?.path();
        let is_ours =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"speed-bump-"));
        if is_ours && path.join("Cargo.toml").is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// The small programs that tests attach to.
pub fn fixtures() -> PathBuf {
    root().join("tests/fixtures")
}

/// The Pythons that `cargo xtask pythons` fetched or built: a folder each.
///
/// `SPEED_BUMP_PYTHONS` names another place, such as one that several working trees share.
pub fn fetched_pythons() -> PathBuf {
    env::var_os("SPEED_BUMP_PYTHONS").map_or_else(|| target().join("pythons"), PathBuf::from)
}

/// The packages that `cargo xtask packages` fetched for all versions of Python.
pub fn python_packages_of_all() -> PathBuf {
    target().join("python-packages")
}

/// The packages for one version of Python: a folder for PYTHONPATH.
pub fn python_packages((major, minor): (u8, u8)) -> PathBuf {
    python_packages_of_all().join(format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("tests/support/src/places.rs").is_file(), "{}", root().display());
        assert!(fixtures().join("service.c").is_file());
    }

    #[test]
    fn crates_are_listed() {
        let crates = crates().unwrap();
        assert!(crates.len() >= 5 && crates.contains(&root().join("speed-bump-ebpf")), "{crates:?}");
    }
}
