//! File systems whose files do not hold data on a disk: the kernel makes up their contents when they are
//! read.
//!
//! Reading one may consume something (/proc/kmsg, `trace_pipe`), block, or show secrets of root. A process
//! with mounts of its own can have any of them under any name: where we expect its perf map, its sources, its
//! debug files. So we refuse them by their file system.
//!
//! This is a list of refused file systems, not of allowed ones. The kernel's own file systems of this kind
//! are few and known (include/uapi/linux/magic.h, Linux 7.0). Those that hold programs are many, and some are
//! not the kernel's (zfs, those of storage makers): a list of these would refuse healthy processes. tmpfs,
//! ramfs and hugetlbfs hold what was written to them, and are allowed.
//!
//! FUSE is allowed too, since images and home directories are on it. Its server could leave a read unanswered
//! for ever. But the kernel lets only the user that mounted it, or processes of the user namespace that it
//! was mounted in, ask the server: we get `EACCES` (fs/fuse/dir.c, `fuse_allow_current_process`). Two cases
//! remain in which we could wait: a server that the administrator allowed to serve every user
//! (`user_allow_other` in fuse.conf), and an overlay that a user mounted over a FUSE file system of his own.
//! So we check beforehand whether they answer ([`answers`](super::answers)); killing the server ends a wait
//! that begins later.

use std::os::fd::AsFd;

use rustix::{
    fs::{FsWord, fstatfs},
    io::Errno,
};

/// By the number that statfs(2) returns.
const PSEUDO: [(FsWord, &str); 32] = [
    (0x9fa0, "procfs"),
    (0x6265_6572, "sysfs"),
    (0x7472_6163, "tracefs"),
    (0x6462_6720, "debugfs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xcafe_4a11, "bpf"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (0x6265_6570, "configfs"),
    (0x0765_5821, "resctrl"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6573_5543, "fusectl"),
    (0x1980_0202, "mqueue"),
    (0x6c6f_6f70, "binderfs"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e66_7364, "nfsd"),
    (0xabba_1974, "xenfs"),
    (0x1cd1, "devpts"),
    (0x9fa1, "openpromfs"),
    (0x9fa2, "usbfs"),
    (0x0904_1934, "anon_inodefs"),
    (0x6e73_6673, "nsfs"),
    (0x5049_4446, "pidfs"),
    (0x534f_434b, "sockfs"),
    (0x5049_5045, "pipefs"),
    (0x444d_4142, "dmabuf"),
    (0x5345_434d, "secretmem"),
];

/// The name of the file system, if it is in the list. Opens nothing: `file` may be `O_PATH`.
///
/// # Errors
/// What the system says.
pub fn file_system(file: impl AsFd) -> Result<Option<&'static str>, Errno> {
    let kind = fstatfs(file)?.f_type;
    Ok(PSEUDO.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{fs::File, path::Path};

    use rustix::fs::{Mode, OFlags, open};

    use super::*;

    #[test]
    fn files_of_the_kernels_own_file_systems_are_known() {
        let of = |path: &str| file_system(open(path, OFlags::PATH, Mode::empty()).unwrap()).unwrap();
        assert_eq!(of("/proc/self/maps"), Some("procfs"));
        for (path, name) in [
            ("/sys/kernel/mm", "sysfs"),
            ("/sys/kernel/tracing", "tracefs"),
            ("/sys/kernel/debug", "debugfs"),
            ("/sys/kernel/security", "securityfs"),
            ("/sys/fs/bpf", "bpf"),
        ] {
            // A mount point with nothing mounted on it is in sysfs.
            assert!(!Path::new(path).exists() || [Some(name), Some("sysfs")].contains(&of(path)), "{path}");
        }
    }

    #[test]
    fn files_that_hold_data_are_none() {
        assert_eq!(file_system(tempfile::tempfile().unwrap()).unwrap(), None);
        assert_eq!(file_system(File::open("/proc/self/exe").unwrap()).unwrap(), None);
        let memory = rustix::fs::memfd_create("data", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(file_system(memory).unwrap(), None);
    }
}
