//! Whether we are in the machine's own namespaces or in a container's.

use std::os::unix::fs::MetadataExt;

/// A kind of namespace that we check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// BPF programs see PIDs of the initial PID namespace. In another namespace, we see other PIDs.
    Pid,
    /// Capabilities apply to the whole kernel only in the initial user namespace.
    User,
}

impl Namespace {
    /// Whether we are in the initial namespace of this kind; `None` if /proc does not show it.
    pub fn is_initial(self) -> Option<bool> {
        // The initial namespaces have fixed inode numbers: PROC_PID_INIT_INO and PROC_USER_INIT_INO in
        // include/linux/proc_ns.h.
        let (path, initial) = match self {
            Self::Pid => ("/proc/self/ns/pid", 0xEFFF_FFFC),
            Self::User => ("/proc/self/ns/user", 0xEFFF_FFFD),
        };
        std::fs::metadata(path).ok().map(|metadata| metadata.ino() == initial)
    }
}
