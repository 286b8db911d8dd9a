//! Debian's kernels, as its cloud images boot them: what most drivers need is built in, so that no initial
//! root file system is needed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::places;
use crate::{
    debian::{self, Archive},
    shell,
};

/// How the packages of kernels begin, and those for clouds end.
const IMAGE: &str = "linux-image-";
const FLAVOUR: &str = "-cloud-amd64";
/// The kernel for tests without `bpf_loop`.
const OLD_KERNEL: &str = "old_kernel";
/// How we name images.
const PREFIX: &str = "vmlinuz-";

/// A series of kernels, and a suite that has it. Backports keep the last kernels of each series.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// The version, without the number of the correction.
    pub(crate) name: &'static str,
    suite: &'static str,
    /// The release whose compiler and C library belong to that suite.
    pub(super) release: &'static str,
    /// The programs that run there by default. If the list is empty: all programs, except those about kernels
    /// like the first.
    only: &'static [&'static str],
}

impl Series {
    /// Whether a program runs there by default.
    pub(super) fn runs(&self, program: &str) -> bool {
        if self.only.is_empty() { program != OLD_KERNEL } else { self.only.contains(&program) }
    }

    /// The suites with its packages and their dependencies.
    pub(super) fn suites(&self) -> Vec<&'static str> {
        if self.suite == self.release { vec![self.suite] } else { vec![self.release, self.suite] }
    }
}

/// The kernels that the tests run on, oldest first: one without `bpf_loop`, on which the tool can do less;
/// two with long support from Debian, one before and one after `uprobe_multi` links are used (6.10); and a
/// recent one.
pub(crate) const SERIES: [Series; 4] = [
    Series {
        name: "5.10",
        suite: "bullseye",
        release: "bullseye",
        only: &[
            "native_functions",
            "session_doses",
            "session_expiry",
            "session_targets",
            "signal_engine",
            OLD_KERNEL,
        ],
    },
    Series { name: "6.1", suite: "bookworm", release: "bookworm", only: &[] },
    Series { name: "6.12", suite: "bookworm-backports", release: "bookworm", only: &[] },
    Series { name: "7.2", suite: "trixie-backports", release: "trixie", only: &[] },
];

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Its `uname -r`: `6.1.0-40-cloud-amd64`.
    pub(crate) release: String,
    /// The compressed image.
    pub(crate) image: PathBuf,
}

impl Kernel {
    /// The module of overlayfs, if it was fetched with the kernel.
    pub(crate) fn overlay(&self) -> Option<PathBuf> {
        Some(self.image.with_file_name(overlay_of(&self.release))).filter(|module| module.is_file())
    }
}

/// Fetches a series' newest kernel, unless one is there; with `update` in any case.
pub(crate) fn ensure(series: &Series, update: bool) -> Result<Kernel> {
    let folder = places::kernel(series);
    if !update && let Some(kernel) = find(&folder) {
        return Ok(kernel);
    }
    fetch(series, &folder)
        .with_context(|| format!("no kernel {} from Debian's {}", series.name, series.suite))
}

fn fetch(series: &Series, folder: &Path) -> Result<Kernel> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let archive = Archive::open(&folder.join("apt"), &[series.suite])?;
    let names = archive.names(IMAGE)?;
    let Some(package) = newest(names.lines(), series.name) else {
        bail!("it has no {IMAGE}{}…", series.name)
    };
    let Some(packages) = archive.download_some(package, is_part)? else { bail!("it has no {package}") };
    // We unpack into another folder and rename it at the end, so that an interrupted run leaves nothing that
    // looks complete.
    let work = tempfile::Builder::new().prefix(".new-").tempdir_in(folder)?;
    debian::prepare(work.path(), &[])?;
    debian::extract(&packages, work.path())?;
    archive.clean()?;
    let release = package.trim_start_matches(IMAGE);
    let names = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
    let unpacked = names.iter().map(|name| work.path().join(name)).find(|path| path.is_file());
    let unpacked = unpacked.with_context(|| format!("{package} brings no {}", names.join(", no ")))?;
    for entry in fs::read_dir(folder)?.flatten().filter(|entry| release_of(&entry.path()).is_some()) {
        fs::remove_file(entry.path())?;
    }
    keep_overlay(work.path(), folder, release)?;
    let image = folder.join(format!("{PREFIX}{release}"));
    fs::rename(&unpacked, &image).with_context(|| format!("cannot move to {}", image.display()))?;
    Ok(Kernel { release: release.to_owned(), image })
}

/// Keeps the module of overlayfs beside the image, since these kernels do not have it built in.
fn keep_overlay(unpacked: &Path, folder: &Path, release: &str) -> Result<()> {
    for modules in ["lib/modules", "usr/lib/modules"] {
        let module = unpacked.join(modules).join(release).join("kernel/fs/overlayfs/overlay.ko");
        let packed = module.with_extension("ko.xz");
        if packed.is_file() {
            shell::output(Command::new("xz").arg("--decompress").arg(&packed))?;
        }
        if module.is_file() {
            fs::rename(&module, folder.join(overlay_of(release)))
                .with_context(|| format!("cannot move {}", module.display()))?;
        }
    }
    Ok(())
}

fn overlay_of(release: &str) -> String {
    format!("overlay-{release}.ko")
}

/// The package of the newest kernel of a version.
fn newest<'a>(packages: impl Iterator<Item = &'a str>, version: &str) -> Option<&'a str> {
    let numbers = |release: &str| -> Vec<u64> {
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    packages
        .filter_map(|package| Some((package, package.strip_prefix(IMAGE)?.strip_suffix(FLAVOUR)?)))
        .filter(|(_, release)| is_of(release, version))
        .max_by_key(|(_, release)| numbers(release))
        .map(|(package, _)| package)
}

/// Whether a package is a part of the kernel: 6.x has one package, 7.x several.
fn is_part(package: &str) -> bool {
    ["linux-image-", "linux-binary-", "linux-modules-"].iter().any(|prefix| package.starts_with(prefix))
}

/// The kernel in a folder.
fn find(folder: &Path) -> Option<Kernel> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let image = entry.path();
        Some(Kernel { release: release_of(&image)?, image })
    })
}

/// The release in an image's name.
fn release_of(image: &Path) -> Option<String> {
    Some(image.file_name()?.to_str()?.strip_prefix(PREFIX)?.to_owned())
}

/// Whether a release belongs to a version: 6.1.0-40 to 6.1, and 6.12.9 not.
fn is_of(release: &str, version: &str) -> bool {
    release.strip_prefix(version).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_parts_of_a_kernel_are_told_from_what_it_needs() {
        for part in [
            "linux-image-6.1.0-40-cloud-amd64",
            "linux-binary-7.2.1+deb13-cloud-amd64",
            "linux-modules-7.2.1+deb13-cloud-amd64",
        ] {
            assert!(is_part(part), "{part}");
        }
        for other in ["linux-base", "kmod", "initramfs-tools", "<linux-initramfs-tool>", "linux-headers-6.1"]
        {
            assert!(!is_part(other), "{other}");
        }
    }

    #[test]
    fn a_release_belongs_to_one_version() {
        assert!(is_of("6.1.0-40-cloud-amd64", "6.1"));
        assert!(!is_of("6.12.9+bpo-cloud-amd64", "6.1"));
        assert!(is_of("6.12.9+bpo-cloud-amd64", "6.12"));
        assert!(!is_of("7.3.1", "7.2"));
    }

    #[test]
    fn the_newest_of_a_version_is_taken() {
        let packages = [
            "linux-image-7.2.9+deb13-cloud-amd64",
            "linux-image-7.2.12+deb13-cloud-amd64",
            "linux-image-7.2.12+deb13-cloud-amd64-dbg",
            "linux-image-7.2.13+deb13-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64",
            "linux-image-7.20.4+deb13-cloud-amd64",
            "linux-image-cloud-amd64",
        ];
        let found = |version| newest(packages.into_iter(), version);
        assert_eq!(found("7.2"), Some("linux-image-7.2.12+deb13-cloud-amd64"));
        assert_eq!(found("7.3"), Some("linux-image-7.3.4+deb13-cloud-amd64"));
        assert_eq!(found("6.1"), None);
    }

    #[test]
    fn a_kernel_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(find(&folder.path().join("absent")).is_none());
        fs::write(folder.path().join("System.map-6.1.0-40"), "").unwrap();
        assert!(find(folder.path()).is_none());
        fs::write(folder.path().join("vmlinuz-6.1.0-40-cloud-amd64"), "").unwrap();
        assert_eq!(find(folder.path()).unwrap().release, "6.1.0-40-cloud-amd64");
    }
}
