//! Unpacking packages into a root folder, as in a Debian whose /bin and /lib are links into /usr.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// Makes the parts of a root that are in no package: Debian's links into /usr, and these folders.
pub(crate) fn prepare(root: &Path, folders: &[&str]) -> Result<()> {
    for folder in ["usr/bin", "usr/lib", "usr/lib64", "usr/sbin"].iter().chain(folders) {
        fs::create_dir_all(root.join(folder)).with_context(|| format!("cannot make {folder}"))?;
    }
    for folder in ["bin", "lib", "lib64", "sbin"] {
        symlink(format!("usr/{folder}"), root.join(folder))
            .with_context(|| format!("cannot link {folder}"))?;
    }
    Ok(())
}

/// Unpacks packages into a root that `prepare` made. Their scripts do not run.
pub(crate) fn extract(packages: &[PathBuf], root: &Path) -> Result<()> {
    for package in packages {
        extract_one(package, root).with_context(|| format!("cannot unpack {}", package.display()))?;
    }
    Ok(())
}

fn extract_one(package: &Path, root: &Path) -> Result<()> {
    // `dpkg-deb --extract` of Debian 12 would replace the link /bin by a folder, for packages that still have
    // one.
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run dpkg-deb")?;
    let files = reader.stdout.take().context("dpkg-deb has no standard output")?;
    let written = Command::new("tar")
        .args(["--extract", "--keep-directory-symlink", "--warning=no-timestamp", "--directory"])
        .arg(root)
        .stdin(files)
        .status()
        .context("cannot run tar")?;
    let read = reader.wait().context("cannot wait for dpkg-deb")?;
    if !(read.success() && written.success()) {
        bail!("dpkg-deb ended with {read}, tar with {written}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system::find_program;

    #[test]
    fn what_a_package_has_in_bin_comes_into_usr_bin() {
        if find_program("dpkg-deb").is_none() {
            return speed_bump_testing::skip!("this system has no dpkg-deb");
        }
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        for part in ["DEBIAN", "bin"] {
            fs::create_dir_all(tree.join(part)).unwrap();
        }
        fs::write(tree.join("bin/example"), "text").unwrap();
        let control =
            "Package: example\nVersion: 1\nArchitecture: all\nMaintainer: none\nDescription: none\n";
        fs::write(tree.join("DEBIAN/control"), control).unwrap();
        let package = folder.path().join("example.deb");
        let built = Command::new("dpkg-deb").arg("--build").arg(&tree).arg(&package).output().unwrap();
        assert!(built.status.success(), "{built:?}");

        let root = folder.path().join("root");
        prepare(&root, &["proc"]).unwrap();
        extract(std::slice::from_ref(&package), &root).unwrap();
        assert!(root.join("bin").is_symlink() && root.join("proc").is_dir());
        assert_eq!(fs::read_to_string(root.join("usr/bin/example")).unwrap(), "text");
        fs::write(&package, "no package").unwrap();
        let error = extract(&[package], &root).unwrap_err();
        assert!(error.to_string().contains("example.deb"), "{error:#}");
    }
}
