//! `cargo xtask package`: packages each published crate, and compiles it from its package.
//!
//! `cargo package` alone compiles each package on its own, which takes minutes. This has the compiler check
//! all of them in one workspace, with the profiles of ours and in the same target folder, so that it uses
//! what other checks have compiled.

use std::{fs, io, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use speed_bump_testing::places;

use crate::shell;

/// Packages the crates, unpacks them, and checks them.
pub(crate) fn run() -> Result<()> {
    let names = published()?;
    let folder = places::target().join("package");
    // The folder may hold packages of an earlier version, and files that no package contains any more.
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", folder.display()));
        }
        _ => {}
    }
    shell::run(
        shell::cargo()
            .args(["package", "--quiet", "--locked", "--no-verify", "--allow-dirty", "--target-dir"])
            .arg(places::target())
            .args(names.iter().flat_map(|name| ["--package", name])),
    )?;
    let unpacked = folder.join("unpacked");
    fs::create_dir(&unpacked).with_context(|| format!("cannot make {}", unpacked.display()))?;
    let mut manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n\n[patch.crates-io]\n".to_owned();
    let version = version()?;
    for name in &names {
        let stem = format!("{name}-{version}");
        let mut tar = Command::new("tar");
        tar.arg("-xmzf").arg(folder.join(format!("{stem}.crate"))).arg("-C").arg(&unpacked);
        shell::run(&mut tar)?;
        manifest.push_str(&format!("{name} = {{ path = \"{stem}\" }}\n"));
    }
    write(&unpacked.join("Cargo.toml"), &manifest)?;
    // The versions of other crates that all checks compile. Cargo drops those that only tests use.
    let lock = places::root().join("Cargo.lock");
    fs::copy(&lock, unpacked.join("Cargo.lock"))
        .with_context(|| format!("cannot copy {}", lock.display()))?;
    shell::run(
        shell::cargo()
            .current_dir(&unpacked)
            .args(["check", "--workspace", "--config"])
            .arg(places::root().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(places::target()),
    )?;
    println!("{} crates compile from their packages: {}", names.len(), names.join(", "));
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The crates of the workspace that are published: others are not meant for other projects.
pub(crate) fn published() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for folder in places::crates().context("cannot list the working tree")? {
        let Package { name, publish } = read::<Manifest>(&folder)?.package;
        if publish {
            names.push(name);
        }
    }
    if names.is_empty() {
        bail!("no crate of {} is published", places::root().display());
    }
    Ok(names)
}

/// The version that all crates have.
fn version() -> Result<String> {
    Ok(read::<Root>(&places::root())?.workspace.package.version)
}

/// Reads the manifest in a folder.
fn read<T: for<'de> Deserialize<'de>>(folder: &Path) -> Result<T> {
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
}

#[derive(Deserialize)]
struct Manifest {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(default = "default_publish")]
    publish: bool,
}

fn default_publish() -> bool {
    true
}

#[derive(Deserialize)]
struct Root {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: WorkspacePackage,
}

#[derive(Deserialize)]
struct WorkspacePackage {
    version: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::PathBuf;

    use super::*;

    /// The files with this extension below a folder.
    fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, extension, found);
            } else if path.extension().is_some_and(|of| of == extension) {
                found.push(path);
            }
        }
    }

    /// The paths that a source includes files by.
    fn included(source: &str) -> Vec<&str> {
        let calls = source.match_indices("include").map(|(at, _)| &source[at..]);
        let quoted = calls.filter_map(|call| {
            let (name, rest) = call.split_once("!(")?;
            let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            is_name.then(|| rest.trim_start().strip_prefix('"')?.split('"').next())?
        });
        quoted.collect()
    }

    #[test]
    fn included_paths_are_found() {
        let source = "const A: &str = include_str!(\"a.txt\");\naya::include_bytes_aligned!(\n \"../b\");\n\
                      include!(env!(\"C\"))";
        assert_eq!(included(source), ["a.txt", "../b"]);
    }

    /// Tests among them, which no package is compiled with.
    #[test]
    fn a_published_crate_includes_files_of_its_own_alone() {
        for name in published().unwrap() {
            let folder = places::root().join(name).canonicalize().unwrap();
            let mut sources = Vec::new();
            files(&folder, "rs", &mut sources);
            for source in sources {
                for path in included(&fs::read_to_string(&source).unwrap()) {
                    let file = source.with_file_name(path).canonicalize();
                    let is_own = file.is_ok_and(|file| file.starts_with(&folder));
                    assert!(is_own, "{}: {path}", source.display());
                }
            }
        }
    }

    #[test]
    fn a_published_crate_says_what_it_is_and_under_which_licence() {
        for name in published().unwrap() {
            let folder = places::root().join(&name);
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            assert!(manifest.contains("\ndescription = "), "{name}");
            let readme = if name == "speed-bump-user" { "../README.md" } else { "README.md" };
            for file in [readme, "LICENSE-APACHE", "LICENSE-MIT"] {
                assert!(folder.join(file).is_file(), "{name}: {file}");
            }
            assert_eq!(manifest.contains("GPL-2.0"), folder.join("LICENSE-GPL-2.0").is_file(), "{name}");
        }
    }
}
