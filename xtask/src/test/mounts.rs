//! Checks whether tests can have mounts of their own here.

use std::fs;

use anyhow::{Context as _, Result, bail};

/// The mounts that this process sees, a line each (proc(5)).
const MOUNTS: &str = "/proc/self/mountinfo";

/// Fails if the root folder is not a mount, as is common under chroot. The kernel then refuses the first step
/// of every test with mounts of its own: to hide them from other processes (`mount --make-rprivate /`).
pub(super) fn check() -> Result<()> {
    let mounts =
        fs::read_to_string(MOUNTS).with_context(|| format!("cannot read {MOUNTS}: mount /proc here"))?;
    if !root_is_a_mount(&mounts) {
        bail!(
            "the root folder here is not a mount, as under chroot: no test could have mounts of its own, and \
             hundreds would fail. Make it a mount before the chroot (mount --bind FOLDER FOLDER), or run \
             `cargo xtask test --bare` outside, which makes an empty Debian"
        );
    }
    Ok(())
}

fn root_is_a_mount(mounts: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    /// A root below which programs of this system run; inside it, tests print what is mounted, and whether a
    /// process can have mounts of its own.
    const BELOW: &str = r#"
        cd "$1"
        if [ "$2" = mount ]; then mount --bind . .; cd "$PWD"; fi
        mkdir proc usr
        mount --rbind /proc proc
        mount --rbind /usr usr
        for folder in bin lib lib64; do
            if [ -L /$folder ]; then ln -s usr/$folder $folder
            elif [ -d /$folder ]; then mkdir $folder; mount --rbind /$folder $folder
            fi
        done
        chroot . /bin/sh -c 'cat /proc/self/mountinfo; if unshare --mount true; then echo own mounts; fi'
    "#;

    #[test]
    fn a_root_that_is_no_mount_is_told_from_others() {
        if !rustix::process::geteuid().is_root() {
            return speed_bump_testing::skip!("mounting needs root");
        }
        for (kind, expected) in [("folder", false), ("mount", true)] {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "/bin/sh", "-euc", BELOW, "sh"]);
            let output = command.arg(folder.path()).arg(kind).output().unwrap();
            let (said, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(said.contains(" /proc "), "{kind}: {said}{errors}");
            assert_eq!(said.contains("own mounts"), expected, "{kind}: {said}{errors}");
            assert_eq!(root_is_a_mount(&said), expected, "{kind}: {said}");
        }
        assert!(check().is_ok(), "tests run here");
    }
}
