//! File systems whose files hold no data on a disk. The kernel makes up the contents of these files when
//! someone reads them.
//!
//! If we read one of these files, we may consume something (/proc/kmsg, `trace_pipe`), wait for ever, or show
//! secrets of root. A process with mounts of its own can put any of them where we expect its perf map, its
//! sources or its debug files. So we look at the file system of a file, and refuse the file systems of this
//! list.
//!
//! This list contains the refused file systems, not the allowed ones. The kernel's own file systems of this
//! kind are few, and we know them (include/uapi/linux/magic.h, Linux 7.0). Many file systems hold programs,
//! and some of those do not come with the kernel (zfs, and file systems of storage makers). With a list of
//! allowed file systems we would refuse healthy processes. tmpfs, ramfs and hugetlbfs hold what programs
//! wrote to them, so we allow them.
//!
//! We also allow FUSE, because images and home directories use it. A FUSE server could leave a read
//! unanswered for ever. But the kernel lets only some processes ask the server: the processes of the user
//! that mounted the file system, and the processes in the user namespace where it was mounted. All others,
//! and so we, get `EACCES` (fs/fuse/dir.c, `fuse_allow_current_process`). In two cases we could still wait.
//! An administrator may have allowed a server to serve every user (`user_allow_other` in fuse.conf). Or a
//! user may have mounted an overlay over a FUSE file system of his own. So we check beforehand whether these
//! file systems answer ([`answers`](super::answers)). If a server stops answering later, an administrator can
//! end our wait by killing the server.

use std::os::fd::AsFd;

use rustix::{
    fs::{FsWord, fstatfs},
    io::Errno,
};

/// The refused file systems, by the number that statfs(2) returns.
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

/// The name of the file's file system, if the list contains it. This opens nothing: `file` may be `O_PATH`.
///
/// # Errors
/// The system's error.
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
            // If nothing is mounted on a mount point, the mount point is in sysfs.
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
