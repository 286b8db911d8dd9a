//! `bpf(2)`: loading BTF and programs, and linking programs to uprobes and tracepoints.
//!
//! aya creates the maps. It can neither load nor link a program for `BPF_TRACE_UPROBE_MULTI` (aya 0.14). The
//! layouts are those of `union bpf_attr` in include/uapi/linux/bpf.h; the kernel accepts a shorter structure
//! than its own.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use aya_obj::generated::bpf_insn;

use crate::units::Pid;

const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const BPF_BTF_LOAD: libc::c_long = 18;
const BPF_MAP_FREEZE: libc::c_long = 22;
const BPF_LINK_CREATE: libc::c_long = 28;

const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_PERF_EVENT: u32 = 41;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_F_SLEEPABLE: u32 = 1 << 4;

/// How much of the verifier's message about a refused program we keep, in bytes.
const LOG_BYTES: usize = 1 << 20;

/// How a uprobe program will be attached; the kernel asks this when it loads the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UprobeAttachType {
    /// One perf event for each site.
    PerfEvent,
    /// One link for all sites of a file (kernel 6.6).
    Multi,
}

/// What a program attaches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Uprobes, attached one by one or many by one link.
    Uprobe(UprobeAttachType),
    /// Uprobes, with helpers that sleep (kernel 6.0).
    SleepingUprobe(UprobeAttachType),
    /// Tracepoints, with their own arguments.
    RawTracepoint,
}

/// A program from the object file, after its relocations.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// At most 15 bytes are kept.
    pub name: &'a str,
    /// Instructions with map file descriptors and calls filled in.
    pub instructions: &'a [bpf_insn],
    /// The licence; the kernel gives GPL-only helpers only to programs under the GPL.
    pub license: &'a CStr,
    /// The object's BTF, as [`load_btf`] returned it.
    pub btf: BorrowedFd<'a>,
    /// Records of `func_info`, and the size of one; callbacks of `bpf_loop` need them.
    pub function_info: (&'a [u8], usize),
    /// What it attaches to.
    pub kind: ProgramKind,
}

/// The kernel refused a program.
#[derive(Debug, thiserror::Error)]
#[error(
    "{error}{}{}",
    if verifier_log.is_empty() { "" } else { "; the verifier said: " },
    verifier_log.replace('\n', " / ")
)]
pub struct LoadError {
    /// The system call's error.
    pub error: io::Error,
    /// The end of the verifier's log; empty if the verifier was not asked for one.
    pub verifier_log: String,
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self { error, verifier_log: String::new() }
    }
}

/// Loads type information.
///
/// # Errors
/// What `BPF_BTF_LOAD` returns; `EPERM` without `CAP_BPF`.
pub fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        btf: u64,
        log_buf: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        /// The kernel writes it since 6.4. Older kernels do not know the field, and refuse anything but 0
        /// there.
        log_true_size: u32,
    }
    let size = u32::try_from(btf.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut attributes = Attributes { btf: btf.as_ptr() as u64, size, ..Default::default() };
    // SAFETY: the structure is laid out as BPF_BTF_LOAD's, and its pointer outlives the call.
    unsafe { bpf_fd(BPF_BTF_LOAD, &mut attributes) }
}

/// Loads a program.
///
/// # Errors
/// What `BPF_PROG_LOAD` returns, with the verifier's log when it refused the program.
pub fn load_program(program: &Program<'_>) -> Result<OwnedFd, LoadError> {
    #[repr(C)]
    struct Attributes {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        padding: u32,
    }
    let mut prog_name = [0; 16];
    for (to, from) in prog_name.iter_mut().take(15).zip(program.name.bytes()) {
        *to = from;
    }
    let (function_info, record_size) = program.function_info;
    let mut log = Vec::new();
    let load = |log: &mut Vec<u8>| {
        let mut attributes = Attributes {
            prog_type: match program.kind {
                ProgramKind::Uprobe(_) | ProgramKind::SleepingUprobe(_) => BPF_PROG_TYPE_KPROBE,
                ProgramKind::RawTracepoint => BPF_PROG_TYPE_RAW_TRACEPOINT,
            },
            insn_cnt: u32::try_from(program.instructions.len()).unwrap_or(u32::MAX),
            insns: program.instructions.as_ptr() as u64,
            license: program.license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: u32::try_from(log.len()).unwrap_or(0),
            log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kern_version: 0,
            prog_flags: match program.kind {
                ProgramKind::SleepingUprobe(_) => BPF_F_SLEEPABLE,
                ProgramKind::Uprobe(_) | ProgramKind::RawTracepoint => 0,
            },
            prog_name,
            prog_ifindex: 0,
            expected_attach_type: match program.kind {
                ProgramKind::Uprobe(attach_type) | ProgramKind::SleepingUprobe(attach_type)
                    if attach_type == UprobeAttachType::Multi =>
                {
                    BPF_TRACE_UPROBE_MULTI
                }
                _ => 0,
            },
            prog_btf_fd: program.btf.as_raw_fd().unsigned_abs(),
            func_info_rec_size: u32::try_from(record_size).unwrap_or(0),
            func_info: function_info.as_ptr() as u64,
            func_info_cnt: u32::try_from(function_info.len() / record_size.max(1)).unwrap_or(0),
            padding: 0,
        };
        // SAFETY: the structure is laid out as BPF_PROG_LOAD's up to `func_info_cnt`; all pointers
        // outlive the call, and the log is as long as it says.
        unsafe { bpf_fd(BPF_PROG_LOAD, &mut attributes) }
    };
    let first = match load(&mut log) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    // Try again, only to get the log.
    log.resize(LOG_BYTES, 0);
    match load(&mut log) {
        Ok(program) => Ok(program),
        Err(_) => {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(&log[..end]);
            let tail: Vec<&str> = text.lines().rev().take(30).collect();
            let verifier_log = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
            Err(LoadError { error: first, verifier_log })
        }
    }
}

/// The sites of one file for one link. All slices have the same length.
#[derive(Clone, Copy, Debug)]
pub struct MultiSites<'a> {
    /// Path of the file that the sites lie in.
    pub path: &'a CStr,
    /// Offsets into the file.
    pub offsets: &'a [u64],
    /// File offsets of USDT semaphores, 0 for none.
    pub semaphores: &'a [u64],
    /// What `bpf_get_attach_cookie` returns at each site.
    pub cookies: &'a [u64],
}

/// Attaches a program to many sites of one file with one link, in one process or (`None`) in all that map the
/// file.
///
/// Closing the link removes all of them. That takes the kernel some 30 ms for any number, where perf events
/// take 100 ms *each* (measured on 6.18: one RCU-tasks-trace grace period per event).
///
/// # Errors
/// The error of `BPF_LINK_CREATE`: `EINVAL` for an offset that is not an instruction or cannot be probed,
/// `ESRCH` when the process is gone, `ENOTSUPP` where uprobes are impossible.
pub fn link_uprobe_multi(
    program: BorrowedFd<'_>,
    sites: &MultiSites<'_>,
    pid: Option<Pid>,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        prog_fd: u32,
        target_fd: u32,
        attach_type: u32,
        flags: u32,
        path: u64,
        offsets: u64,
        ref_ctr_offsets: u64,
        cookies: u64,
        cnt: u32,
        uprobe_flags: u32,
        pid: u32,
        padding: u32,
    }
    if sites.semaphores.len() != sites.offsets.len() || sites.cookies.len() != sites.offsets.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let has_semaphores = sites.semaphores.iter().any(|semaphore| *semaphore != 0);
    let mut attributes = Attributes {
        prog_fd: program.as_raw_fd().unsigned_abs(),
        target_fd: 0,
        attach_type: BPF_TRACE_UPROBE_MULTI,
        flags: 0,
        path: sites.path.as_ptr() as u64,
        offsets: sites.offsets.as_ptr() as u64,
        ref_ctr_offsets: if has_semaphores { sites.semaphores.as_ptr() as u64 } else { 0 },
        cookies: sites.cookies.as_ptr() as u64,
        cnt: u32::try_from(sites.offsets.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        uprobe_flags: 0,
        pid: pid.map_or(0, |pid| pid.get().unsigned_abs()),
        padding: 0,
    };
    // SAFETY: the structure is laid out as BPF_LINK_CREATE's `uprobe_multi`; the three arrays are as long
    // as `cnt` says and outlive the call.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attributes) }
}

/// Attaches a program to a perf event.
///
/// # Errors
/// What `BPF_LINK_CREATE` returns.
pub fn link_perf_event(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        prog_fd: u32,
        target_fd: u32,
        attach_type: u32,
        flags: u32,
        bpf_cookie: u64,
    }
    let mut attributes = Attributes {
        prog_fd: program.as_raw_fd().unsigned_abs(),
        target_fd: event.as_raw_fd().unsigned_abs(),
        attach_type: BPF_PERF_EVENT,
        flags: 0,
        bpf_cookie: cookie,
    };
    // SAFETY: the structure is laid out as BPF_LINK_CREATE's `perf_event`.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attributes) }
}

/// Attaches a program to a raw tracepoint until the descriptor is closed.
///
/// # Errors
/// What `BPF_RAW_TRACEPOINT_OPEN` returns; `ENOENT` where there is no such tracepoint.
pub fn open_raw_tracepoint(program: BorrowedFd<'_>, tracepoint: &CStr) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        name: u64,
        prog_fd: u32,
        padding: u32,
    }
    let prog_fd = program.as_raw_fd().unsigned_abs();
    let mut attributes = Attributes { name: tracepoint.as_ptr() as u64, prog_fd, padding: 0 };
    // SAFETY: the structure is laid out as BPF_RAW_TRACEPOINT_OPEN's, and the name outlives the call.
    unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &mut attributes) }
}

/// Writes the first element of an array with elements of `element_bytes`.
///
/// # Errors
/// `InvalidInput` if `value` has another length; else the error of `BPF_MAP_UPDATE_ELEM`.
pub fn set_first_element(map: BorrowedFd<'_>, element_bytes: u32, value: &[u8]) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map_fd: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    if u32::try_from(value.len()) != Ok(element_bytes) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let key = 0_u32;
    let mut attributes = Attributes {
        map_fd: map.as_raw_fd().unsigned_abs(),
        padding: 0,
        key: (&raw const key).addr() as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    // SAFETY: laid out as the elements' part of the union. The key is a `u32`, as for arrays. The kernel
    // reads as many bytes of the value as the map was created with, and the value has that many.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Forbids later changes to the map by system calls.
///
/// # Errors
/// What `BPF_MAP_FREEZE` returns.
pub fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map_fd: u32,
    }
    let mut attributes = Attributes { map_fd: map.as_raw_fd().unsigned_abs() };
    // SAFETY: the structure is laid out as BPF_MAP_FREEZE's part of the union.
    unsafe { bpf(BPF_MAP_FREEZE, &mut attributes) }.map(drop)
}

/// A `bpf(2)` command that returns a file descriptor.
///
/// # Safety
/// `attributes` is laid out as the command's part of `union bpf_attr`, without uninitialised padding, and
/// every pointer in it is valid for what the command does with it.
unsafe fn bpf_fd<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: these commands return a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A `bpf(2)` command.
///
/// # Safety
/// As [`bpf_fd`].
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let size = size_of::<T>();
    // SAFETY: the kernel reads and writes within `size` bytes at `attributes`; the rest is the caller's
    // promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
