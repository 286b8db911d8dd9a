//! The capabilities of Linux that matter here.

use std::fmt;

/// The capabilities (capabilities(7)) that decide something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Opens files whatever their permissions.
    DacOverride,
    /// Reads files and directories whatever their permissions.
    DacReadSearch,
    /// Inspects other users' processes.
    SysPtrace,
    /// Includes [`Capability::Bpf`], [`Capability::Perfmon`] and [`Capability::CheckpointRestore`].
    SysAdmin,
    /// Lifts limits on locked memory. Before Linux 5.11, BPF maps count as locked memory.
    SysResource,
    /// Loads tracing programs and, in many kernels, opens uprobes (since Linux 5.8).
    Perfmon,
    /// Loads BPF programs and creates maps (since Linux 5.8).
    Bpf,
    /// Opens mapped files through /proc/PID/map_files, even deleted ones (since Linux 5.9).
    CheckpointRestore,
}

impl Capability {
    /// The number of the capability's bit (include/uapi/linux/capability.h).
    pub const fn number(self) -> u32 {
        match self {
            Self::DacOverride => 1,
            Self::DacReadSearch => 2,
            Self::SysPtrace => 19,
            Self::SysAdmin => 21,
            Self::SysResource => 24,
            Self::Perfmon => 38,
            Self::Bpf => 39,
            Self::CheckpointRestore => 40,
        }
    }

    /// Whether a set of capabilities contains this one.
    pub const fn is_in(self, set: u64) -> bool {
        set & (1 << self.number()) != 0
    }

    /// Whether CAP_SYS_ADMIN includes this capability.
    pub(crate) const fn is_part_of_sys_admin(self) -> bool {
        matches!(self, Self::Perfmon | Self::Bpf | Self::CheckpointRestore)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
            Self::CheckpointRestore => "CAP_CHECKPOINT_RESTORE",
        })
    }
}
