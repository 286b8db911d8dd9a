//! `bpf(2)`: loads BTF and programs, and links programs to uprobes and tracepoints.
//!
//! aya creates the maps. aya 0.14 can neither load nor link a program for `BPF_TRACE_UPROBE_MULTI`. The
//! structures here are laid out as in `union bpf_attr` in include/uapi/linux/bpf.h. The kernel accepts a
//! structure that is shorter than its own.

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

/// How many bytes we keep of the verifier's message about a refused program.
const LOG_BYTES: usize = 1 << 20;

/// How we will attach a uprobe program; the kernel asks this when we load the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UprobeAttachType {
    /// With one perf event for each site.
    PerfEvent,
    /// With one link for all sites of a file (kernel 6.6).
    Multi,
}

/// What a program attaches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Uprobes. One link attaches one uprobe or many.
    Uprobe(UprobeAttachType),
    /// Uprobes whose program calls helpers that sleep (kernel 6.0).
    SleepingUprobe(UprobeAttachType),
    /// Tracepoints; the program gets the tracepoint's own arguments.
    RawTracepoint,
}

/// A program from the object file, after its relocations.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The name; the kernel keeps at most 15 bytes of it.
    pub name: &'a str,
    /// The instructions. They already contain the targets of calls, and the file descriptors of maps.
    pub instructions: &'a [bpf_insn],
    /// The licence. The kernel lets only programs under the GPL call the helpers that are for GPL programs.
    pub license: &'a CStr,
    /// The object's BTF, as [`load_btf`] returned it.
    pub btf: BorrowedFd<'a>,
    /// The records of `func_info`, and the size of one record. Callbacks of `bpf_loop` need these records.
    pub function_info: (&'a [u8], usize),
    /// What the program attaches to.
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
    /// The end of the verifier's log; empty if we did not ask the verifier for one.
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
/// The error of `BPF_BTF_LOAD`; `EPERM` without `CAP_BPF`.
pub fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        btf: u64,
        log_buf: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        /// The kernel has written this field since 6.4. Older kernels do not know the field, and accept only
        /// 0 there.
        log_true_size: u32,
    }
    let size = u32::try_from(btf.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut attributes = Attributes { btf: btf.as_ptr() as u64, size, ..Default::default() };
    // SAFETY: the structure is laid out like the one for BPF_BTF_LOAD, and the bytes behind its pointer
    // outlive the call.
    unsafe { bpf_fd(BPF_BTF_LOAD, &mut attributes) }
}

/// Loads a program.
///
/// # Errors
/// The error of `BPF_PROG_LOAD`, with the verifier's log if the verifier refused the program.
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
        // SAFETY: the structure is laid out like the one for BPF_PROG_LOAD up to `func_info_cnt`. The data
        // behind all pointers outlives the call, and the log is as long as the structure says.
        unsafe { bpf_fd(BPF_PROG_LOAD, &mut attributes) }
    };
    let first = match load(&mut log) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    // We load again only to get the log.
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

/// The sites of one file that one link attaches to. All slices have the same length.
#[derive(Clone, Copy, Debug)]
pub struct MultiSites<'a> {
    /// Path of the file that the sites lie in.
    pub path: &'a CStr,
    /// Offsets of the sites in the file.
    pub offsets: &'a [u64],
    /// File offsets of the sites' USDT semaphores; 0 for a site without one.
    pub semaphores: &'a [u64],
    /// What `bpf_get_attach_cookie` returns at each site.
    pub cookies: &'a [u64],
}

/// Attaches a program to many sites of one file with one link. The program runs in one process, or (`None`)
/// in all processes that map the file.
///
/// When we close the link, the kernel removes all sites. That takes some 30 ms for any number of sites. With
/// perf events, *each* site takes 100 ms (measured on 6.18: one RCU-tasks-trace grace period for each event).
///
/// # Errors
/// The error of `BPF_LINK_CREATE`: `EINVAL` for an offset that is not an instruction or that cannot have a
/// uprobe, `ESRCH` if the process is gone, `ENOTSUPP` where uprobes are impossible.
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
    // SAFETY: the structure is laid out like the `uprobe_multi` of BPF_LINK_CREATE. The three arrays are as
    // long as `cnt` says, and outlive the call.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attributes) }
}

/// Attaches a program to a perf event.
///
/// # Errors
/// The error of `BPF_LINK_CREATE`.
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
    // SAFETY: the structure is laid out like the `perf_event` of BPF_LINK_CREATE.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attributes) }
}

/// Attaches a program to a raw tracepoint until the caller closes the descriptor.
///
/// # Errors
/// The error of `BPF_RAW_TRACEPOINT_OPEN`; `ENOENT` if the kernel has no such tracepoint.
pub fn open_raw_tracepoint(program: BorrowedFd<'_>, tracepoint: &CStr) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        name: u64,
        prog_fd: u32,
        padding: u32,
    }
    let prog_fd = program.as_raw_fd().unsigned_abs();
    let mut attributes = Attributes { name: tracepoint.as_ptr() as u64, prog_fd, padding: 0 };
    // SAFETY: the structure is laid out like the one for BPF_RAW_TRACEPOINT_OPEN, and the name outlives the
    // call.
    unsafe { bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &mut attributes) }
}

/// Writes the first element of an array whose elements have `element_bytes` bytes.
///
/// # Errors
/// `InvalidInput` if `value` has another length; otherwise the error of `BPF_MAP_UPDATE_ELEM`.
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
    // SAFETY: the structure is laid out like the part of the union for map elements. The key is a `u32`,
    // which arrays have. The kernel reads the number of bytes that the map's creator gave to it, and the
    // value has that many bytes.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Forbids all later changes to the map by system calls.
///
/// # Errors
/// The error of `BPF_MAP_FREEZE`.
pub fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map_fd: u32,
    }
    let mut attributes = Attributes { map_fd: map.as_raw_fd().unsigned_abs() };
    // SAFETY: the structure is laid out like the part of the union for BPF_MAP_FREEZE.
    unsafe { bpf(BPF_MAP_FREEZE, &mut attributes) }.map(drop)
}

/// Calls a `bpf(2)` command that returns a file descriptor.
///
/// # Safety
/// `attributes` is laid out like the part of `union bpf_attr` for this command, without uninitialised
/// padding. Every pointer in it is valid for what the command does with the pointer.
unsafe fn bpf_fd<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: our caller promises what `bpf` requires.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: these commands return a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls a `bpf(2)` command.
///
/// # Safety
/// See [`bpf_fd`].
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    let size = size_of::<T>();
    // SAFETY: the kernel reads and writes only the `size` bytes at `attributes`, and what the pointers in
    // them lead to. Our caller promises that these pointers are valid.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
