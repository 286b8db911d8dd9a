//! Facts about the running kernel.

/// Offsets of fields of `task_struct`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskOffsets {
    /// `pid`
    pub pid: u32,
    /// `tgid`
    pub tgid: u32,
    /// `mm`
    pub mm: u32,
}
