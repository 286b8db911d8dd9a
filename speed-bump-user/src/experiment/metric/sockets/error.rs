//! Errors of counting requests on sockets.

use std::io;

use aya::{EbpfError, maps::MapError, programs::ProgramError};

use crate::{
    causes::with_causes,
    kernel::{btf::BtfError, task_offsets::VMLINUX_BTF},
    units::Pid,
};

/// Why requests cannot be counted on sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketsError {
    /// The sockets of a process cannot be inspected.
    #[error(
        "cannot inspect the sockets of process {pid}: {error}; run as root, or with CAP_SYS_PTRACE, and see \
         that the process still runs"
    )]
    Descriptors {
        /// PID of the process whose sockets were to be listed.
        pid: Pid,
        /// Error of the system call, or of the BPF library.
        error: io::Error,
    },
    /// The kernel uses other process ids than this PID namespace.
    #[error(
        "the tool is in a container's PID namespace, where the kernel gives BPF programs other PIDs than it \
         gives the tool; run in the machine's own (docker: --pid=host)"
    )]
    OtherNamespace,
    /// There are too many unix sockets.
    #[error("the service listens on {count} unix sockets, and at most 256 are supported")]
    TooManyNames {
        /// How many.
        count: usize,
    },
    /// The type information cannot be read.
    #[error(
        "reading {VMLINUX_BTF}: {0}; use a kernel built with CONFIG_DEBUG_INFO_BTF=y, with sysfs mounted on \
         /sys"
    )]
    NoTypes(io::Error),
    /// The type information is not as documented.
    #[error("{VMLINUX_BTF}: {0}; please report your kernel's version")]
    Types(BtfError),
    /// Another parser found it invalid.
    #[error("{VMLINUX_BTF}: {0}; please report your kernel's version")]
    KernelTypes(String),
    /// The object could not be loaded.
    #[error("cannot load the BPF object that counts requests on sockets: {}", with_causes(.0))]
    Object(EbpfError),
    /// The object lacks a program or map.
    #[error("the BPF object for sockets has no `{name}`; rebuild it with `cargo xtask ebpf`")]
    Lacks {
        /// Name of the missing map, program or variable.
        name: &'static str,
    },
    /// A map could not be mapped into memory.
    #[error("cannot map the BPF map `{name}` into memory: {error}; raise `ulimit -v`")]
    Mapping {
        /// The map.
        name: &'static str,
        /// Error of the system call, or of the BPF library.
        error: io::Error,
    },
    /// A map could not be read or written.
    #[error("cannot use the BPF map `{name}`: {}", with_causes(.error))]
    Map {
        /// The map.
        name: &'static str,
        /// Error of the system call, or of the BPF library.
        error: MapError,
    },
    /// The kernel does not have a tracepoint.
    #[error(
        "this kernel has no tracepoint `{tracepoint}`, so requests on sockets cannot be counted: use Linux \
         6.3 or later, or another metric"
    )]
    NoTracepoint {
        /// Name of the tracepoint, without its group.
        tracepoint: &'static str,
    },
    /// The kernel refused a program.
    #[error("the kernel refused the BPF program for the tracepoint `{tracepoint}`: {}", with_causes(.error))]
    Load {
        /// Name of the tracepoint, without its group.
        tracepoint: &'static str,
        /// Error of the system call, or of the BPF library.
        error: ProgramError,
    },
    /// A program could not be attached.
    #[error(
        "cannot attach a BPF program to the tracepoint `{tracepoint}`: {}; run as root, or with CAP_BPF and \
         CAP_PERFMON",
        with_causes(.error)
    )]
    Attach {
        /// Name of the tracepoint, without its group.
        tracepoint: &'static str,
        /// Error of the system call, or of the BPF library.
        error: ProgramError,
    },
}
