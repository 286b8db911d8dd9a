//! The guest's root file system: the Debian release of this system, so that programs compiled here run there,
//! with a compiler and Pythons, as an ext4 image that guests start from and do not change.

use std::{
    fs,
    os::unix::fs::{FileExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::places as tree;

use super::places;
use crate::{
    debian::{self, Archive},
    pythons, shell,
    system::{self, Need},
};

/// The packages in the guest, without recommendations: for tests, and for the first process.
const PACKAGES: [&str; 13] = [
    "binutils",
    "busybox-static",
    "coreutils",
    "dash",
    "gcc",
    "grep",
    "libc6-dev",
    "mount",
    "procps",
    "python3",
    "sed",
    "tar",
    "util-linux",
];

/// A Python with perf trampolines and `sys.monitoring`, beside the system's.
pub(super) const NEWER_PYTHON: &str = "3.13";
/// The guest's folder for Pythons besides the system's.
pub(super) const PYTHONS: &str = "/opt/pythons";

/// The first process, which runs `/guest/job`, and commands for it and for jobs.
const COMMANDS: [(&str, &str); 3] = [
    ("guest/init", include_str!("init.sh")),
    ("guest/bin/disk", include_str!("disk.sh")),
    ("guest/bin/keep-results", include_str!("keep-results.sh")),
];

/// The disk's signature, by which the kernel's command line names the file system. Names such as /dev/nvme0n1
/// depend on the order in which the disks answer.
const SIGNATURE: u32 = 0x5b_e6_bf_01;
pub(super) const DEVICE: &str = "PARTUUID=5be6bf01-01";
/// Offset of the file system on the disk.
const FIRST_BYTE: u64 = 1 << 20;
/// More than packages and tests need; the image's file has holes.
const SIZE: &str = "4G";

const MKFS: Need =
    Need { program: "/usr/sbin/mkfs.ext4", package: "e2fsprogs", purpose: "to make the guest's file system" };

/// Makes the image, unless it is there; with `update` in any case. Returns its path.
pub(crate) fn ensure(update: bool) -> Result<PathBuf> {
    let folder = places::root();
    let (image, stamp) = (folder.join("root.img"), folder.join("contents.txt"));
    let wanted = contents();
    if !update && image.is_file() && fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        return Ok(image);
    }
    system::ensure(&[MKFS])?;
    let codename = debian::codename()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let archive = Archive::open(&folder.join("apt"), &[&codename]).context("no root for the guest")?;
    let Some(packages) = archive.download(&PACKAGES)? else { bail!("Debian {codename} lacks {PACKAGES:?}") };
    eprintln!("making the guest's root file system: {} packages", packages.len());
    let _ = fs::remove_file(&stamp);
    let work = tempfile::Builder::new().prefix(".new-").tempdir_in(&folder)?;
    let root = work.path();
    fill(root, &packages)?;
    archive.clean()?;
    let _ = fs::remove_file(&image);
    shell::output(
        Command::new(MKFS.program)
            .args([
                "-q",
                "-F",
                "-O",
                "^has_journal",
                "-E",
                &format!("root_owner=0:0,offset={FIRST_BYTE}"),
                "-d",
            ])
            .arg(root)
            .arg(&image)
            .arg(SIZE),
    )?;
    partition(&image)?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(image)
}

/// Writes a partition table with the file system as its only entry, so that the kernel finds it by `DEVICE`.
fn partition(image: &Path) -> Result<()> {
    let file = fs::File::options().read(true).write(true).open(image);
    let file = file.with_context(|| format!("cannot open {}", image.display()))?;
    let table = partition_table(file.metadata()?.len());
    file.write_all_at(&table, 0).with_context(|| format!("cannot write to {}", image.display()))
}

/// The first sector of a disk with one partition, from `FIRST_BYTE` to the end.
fn partition_table(disk_bytes: u64) -> [u8; 512] {
    const LINUX: u8 = 0x83;
    let sectors = |bytes: u64| u32::try_from(bytes / 512).unwrap_or(u32::MAX).to_le_bytes();
    let mut table = [0; 512];
    table[440..444].copy_from_slice(&SIGNATURE.to_le_bytes());
    table[450] = LINUX;
    table[454..458].copy_from_slice(&sectors(FIRST_BYTE));
    table[458..462].copy_from_slice(&sectors(disk_bytes - FIRST_BYTE));
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table
}

/// The packages of an image.
fn contents() -> String {
    format!("{PACKAGES:?}\nPython {NEWER_PYTHON}\n{CONFIGURATION:?}\n{COMMANDS:?}\n{SIZE}\n")
}

/// Files in /etc that installing the packages would have left.
const CONFIGURATION: [(&str, &str); 4] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n"),
    ("etc/hostname", "guest\n"),
];

fn fill(root: &Path, packages: &[PathBuf]) -> Result<()> {
    debian::prepare(
        root,
        &["proc", "sys", "dev", "tmp", "run", "root", "etc", "opt/pythons", "guest/bin", "results"],
    )?;
    // `tempdir` keeps other users out, and the guest has other users.
    for (folder, mode) in [("", 0o755), ("tmp", 0o1777)] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(mode))?;
    }
    debian::extract(packages, root)?;
    for (file, text) in CONFIGURATION {
        fs::write(root.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    for (file, text) in COMMANDS {
        let path = root.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {file}"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    // As the alternatives system would have it.
    symlink("gcc", root.join("usr/bin/cc")).context("cannot link cc")?;
    if let Err(error) = pythons::fetch(&[NEWER_PYTHON], false) {
        eprintln!("warning: the guest does without Python {NEWER_PYTHON}: {error:#}");
        return Ok(());
    }
    let python = tree::fetched_pythons().join(NEWER_PYTHON);
    shell::output(Command::new("cp").arg("--archive").arg(python).arg(root.join("opt/pythons")))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_is_named_by_the_disks_signature() {
        assert_eq!(DEVICE, format!("PARTUUID={SIGNATURE:08x}-01"));
        let table = partition_table(3 << 20);
        assert_eq!(table[440..444], [0x01, 0xbf, 0xe6, 0x5b]);
        // Its first sector, and its number of sectors.
        assert_eq!(table[454..462], [0, 8, 0, 0, 0, 16, 0, 0]);
        assert_eq!(table[510..], [0x55, 0xaa]);
    }
}
