//! Offsets of the kernel's fields, from `task_struct` on, that BPF programs read to learn about a process.

use std::{
    io,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

use super::{
    btf::{Btf, BtfError},
    namespace::Namespace,
};
use crate::sys::kernel_types::KernelTypes;

/// Where the kernel publishes its type information.
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Offsets in `task_struct` and in structures to which it leads, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TaskOffsets {
    /// The offset of `pid`: the thread's id in the initial PID namespace (4 bytes).
    pub pid: u32,
    /// The offset of `tgid`: the process's id in the initial PID namespace (4 bytes).
    pub tgid: u32,
    /// The offset of `mm`: the address space (a pointer).
    pub mm: u32,
    /// The offset of `ptrace`: flags, not zero while the thread is traced (4 bytes).
    pub ptrace: u32,
    /// The offset of `group_leader`: the process's first thread (a pointer).
    pub leader: u32,
    /// The offset of `start_boottime`: when the thread started, in ns (8 bytes; since Linux 5.5).
    pub start: u32,
    /// The offset of `blocked`: the blocked signals, a bit for each (8 bytes).
    pub blocked: u32,
    /// The offset of `sighand`: the process's signal handlers (a pointer).
    pub sighand: u32,
    /// The offset of `sighand_struct.action`, which is an array.
    pub actions: u32,
    /// The size of an element of this array, `k_sigaction`, in bytes.
    pub action_bytes: u32,
}

/// Why we do not know the offsets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskOffsetsError {
    /// We see other PIDs than the kernel uses.
    #[error(
        "the tool is in a container's PID namespace, where the kernel gives BPF programs other PIDs than it \
         gives the tool; run in the machine's own (docker: --pid=host)"
    )]
    OtherNamespace,
    /// The type information cannot be read.
    #[error(
        "reading {VMLINUX_BTF}: {0}; use a kernel built with CONFIG_DEBUG_INFO_BTF=y, with sysfs mounted on \
         /sys"
    )]
    Unreadable(io::Error),
    /// The type information differs from what its documentation says.
    #[error("{VMLINUX_BTF}: {0}; please report your kernel's version")]
    Btf(BtfError),
    /// A member's offset is impossible for its size.
    #[error(
        "{VMLINUX_BTF}: task_struct.{member} at {offset} is misplaced: please report your kernel's version"
    )]
    Misplaced {
        /// Name of the member of `task_struct`.
        member: &'static str,
        /// The offset in the type information.
        offset: u32,
    },
}

impl From<BtfError> for TaskOffsetsError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl TaskOffsets {
    /// Reads the running kernel's offsets. Fails if we see other PIDs than the kernel uses.
    ///
    /// # Errors
    /// See [`TaskOffsets::read`]. Also fails in a container's PID namespace.
    pub fn usable() -> Result<Self, TaskOffsetsError> {
        if Namespace::Pid.is_initial() != Some(true) {
            return Err(TaskOffsetsError::OtherNamespace);
        }
        Self::read()
    }

    /// Reads the running kernel's offsets. This takes some milliseconds the first time; later calls return
    /// the same result.
    pub fn read() -> Result<Self, TaskOffsetsError> {
        static READ: Mutex<Option<TaskOffsets>> = Mutex::new(None);
        // If two threads call this at the same time, the second thread waits for the first one.
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = *read {
            return Ok(known);
        }
        let types = KernelTypes::open(Path::new(VMLINUX_BTF)).map_err(TaskOffsetsError::Unreadable)?;
        Ok(*read.insert(Self::from_btf(&types)?))
    }

    /// Starts a thread that reads the offsets, for later callers of [`TaskOffsets::read`].
    pub fn read_ahead() {
        let read = || drop(Self::usable());
        // If the thread cannot start, the caller of `read` reads the offsets.
        let _ = thread::Builder::new().name("kernel-types".to_owned()).spawn(read);
    }

    /// Reads the offsets of the kernel that this BTF describes.
    pub fn from_btf(data: &[u8]) -> Result<Self, TaskOffsetsError> {
        let btf = Btf::parse(data)?;
        let task = btf.structure("task_struct")?;
        let offset = |member, size: u32| {
            let offset = btf.member_offset(task, member)?;
            let fits = offset % size == 0 && offset.checked_add(size).is_some_and(|end| end <= task.size);
            if fits { Ok(offset) } else { Err(TaskOffsetsError::Misplaced { member, offset }) }
        };
        Ok(Self {
            pid: offset("pid", 4)?,
            tgid: offset("tgid", 4)?,
            mm: offset("mm", 8)?,
            ptrace: offset("ptrace", 4)?,
            leader: offset("group_leader", 8)?,
            start: offset("start_boottime", 8)?,
            blocked: offset("blocked", 8)?,
            sighand: offset("sighand", 8)?,
            actions: btf.member_offset(btf.structure("sighand_struct")?, "action")?,
            action_bytes: btf.structure("k_sigaction")?.size,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_running_kernel_has_them() {
        if !Path::new(VMLINUX_BTF).exists() {
            speed_bump_testing::skip!("{VMLINUX_BTF} does not exist (CONFIG_DEBUG_INFO_BTF)");
            return;
        }
        let TaskOffsets { pid, tgid, mm, ptrace, action_bytes, .. } = TaskOffsets::read().unwrap();
        assert_eq!(action_bytes, 32, "handler, flags, restorer, mask");
        assert!(pid != tgid && pid != mm && tgid != mm, "{pid} {tgid} {mm}");
        assert!(![pid, tgid, mm].contains(&ptrace), "{ptrace}");
        assert!(pid > 0 && tgid > 0 && mm > 0 && ptrace > 0, "thread_info comes first");
    }

    #[test]
    fn other_data_is_refused() {
        assert!(matches!(TaskOffsets::from_btf(b"text"), Err(TaskOffsetsError::Btf(BtfError::BadMagic))));
    }
}
