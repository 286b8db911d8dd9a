//! `perf_event_open(2)` for one uprobe.

use std::{
    ffi::CStr,
    fs, io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use crate::units::{FileOffset, Pid};

/// Closes the descriptor on exec (include/uapi/linux/perf_event.h).
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// The perf event source for uprobes (kernel 4.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UprobeSource {
    number: u32,
}

/// `perf_event_attr` up to PERF_ATTR_SIZE_VER1 (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    uprobe_path: u64,
    probe_offset: u64,
}

impl UprobeSource {
    /// Reads the number that this kernel gave to the source.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no uprobe events (`CONFIG_UPROBE_EVENTS`).
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let number = text.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self { number })
    }

    /// Opens the event of one site in one process. The event is for all threads of the process, and for none
    /// of its children.
    ///
    /// # Errors
    /// The error of `perf_event_open`: `EACCES` without `CAP_PERFMON`. `InvalidInput` for a semaphore beyond
    /// the first 4 GiB of the file, because the interface has only 32 bits for this offset.
    pub fn open(
        self,
        path: &CStr,
        offset: FileOffset,
        semaphore: Option<FileOffset>,
        pid: Pid,
    ) -> io::Result<OwnedFd> {
        let semaphore =
            u32::try_from(semaphore.map_or(0, |offset| offset.0)).map_err(|_| io::ErrorKind::InvalidInput)?;
        let attributes = Attributes {
            kind: self.number,
            size: size_of::<Attributes>() as u32,
            // Bits 32 to 63 are `ref_ctr_offset` (/sys/bus/event_source/devices/uprobe/format).
            config: u64::from(semaphore) << 32,
            uprobe_path: path.as_ptr() as u64,
            probe_offset: offset.0,
            ..Attributes::default()
        };
        // SAFETY: the structure is as long as its `size` says, and the path outlives the call.
        unsafe { open_event(&raw const attributes, pid) }
    }
}

/// `PERF_EVENT_IOC_SET_BPF` (include/uapi/linux/perf_event.h).
const SET_BPF: libc::Ioctl = 0x4004_2408_u32 as libc::Ioctl;

/// Makes an event run a program until the event is closed. Kernels before 5.15 have no link for this.
///
/// # Errors
/// The kernel's error: `EACCES` for a program that it will not run at a uprobe.
pub fn set_program(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes the program's descriptor as a number.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens an event for one thread. The event counts on any CPU, and belongs to no group.
///
/// # Safety
/// `attributes` points to a `struct perf_event_attr` that is as long as its `size` says, and every pointer in
/// it is valid.
///
/// # Errors
/// The error of `perf_event_open`.
pub(super) unsafe fn open_event<A>(attributes: *const A, thread: Pid) -> io::Result<OwnedFd> {
    let (any_cpu, no_group) = (-1, -1);
    // SAFETY: our caller promises that the structure and its pointers are valid.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes,
            thread.get(),
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: this is a new descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
