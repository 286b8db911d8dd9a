//! Asks the kernel for features by using them without effect. We load tiny BPF programs and drop them, and
//! request links that cannot be made. This attaches nothing anywhere.

use std::{
    ffi::CStr,
    io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use aya::{
    maps::MapType,
    programs::{ProgramError, ProgramType},
    sys::{BpfHelper, is_helper_supported, is_map_supported, is_program_supported},
};

use super::KernelVersion;

/// Whether the kernel has a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Yes.
    Yes,
    /// No.
    No,
    /// The kernel did not answer, for this reason. Mostly we lack the permission to ask.
    Unknown(String),
}

impl Default for Support {
    fn default() -> Self {
        Self::Unknown("not asked".to_owned())
    }
}

impl Support {
    /// The kernel's answer. Without an answer, the kernel's version decides: whether it is new enough.
    pub fn or_since(&self, running: KernelVersion, since: KernelVersion) -> bool {
        match self {
            Self::Yes => true,
            Self::No => false,
            Self::Unknown(_) => running >= since,
        }
    }

    fn from_aya(answer: Result<bool, ProgramError>) -> Self {
        match answer {
            Ok(true) => Self::Yes,
            Ok(false) => Self::No,
            Err(ProgramError::SyscallError(error)) => Self::Unknown(error.io_error.to_string()),
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}

/// Answers for which we must load a program.
pub(super) struct Probes {
    pub(super) programs: Support,
    pub(super) ring_buffers: Support,
    pub(super) cookies: Support,
    pub(super) bpf_loop: Support,
    pub(super) send_signal: Support,
    pub(super) kernel_reads: Support,
    pub(super) uprobe_multi: Support,
    pub(super) uprobe_multi_pid: Support,
}

impl Probes {
    /// The same answer to all questions.
    pub(super) fn same(answer: &Support) -> Self {
        Self {
            programs: answer.clone(),
            ring_buffers: answer.clone(),
            cookies: answer.clone(),
            bpf_loop: answer.clone(),
            send_signal: answer.clone(),
            kernel_reads: answer.clone(),
            uprobe_multi: answer.clone(),
            uprobe_multi_pid: answer.clone(),
        }
    }
}

/// Whether bpf(2) exists and we may use it.
pub(super) fn bpf() -> Support {
    // Asks to create a map (command 0) with an invalid type. The answer is EINVAL if we may use bpf(2).
    match bpf_call(0, &[0_u64; 4]) {
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSYS) => Support::No,
            Some(libc::EINVAL) => Support::Yes,
            _ => Support::Unknown(error.to_string()),
        },
        Ok(fd) => {
            // SAFETY: the call has just returned this descriptor, and nothing else owns it. We expect an
            // error instead, and close the descriptor at once.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Support::Yes
        }
    }
}

/// The folder in which sysfs describes the event source for uprobes.
pub(super) const UPROBE_PMU: &str = "/sys/bus/event_source/devices/uprobe";

/// The type number of that event source.
pub(super) fn uprobe_pmu() -> Option<u32> {
    std::fs::read_to_string(format!("{UPROBE_PMU}/type")).ok()?.trim().parse().ok()
}

/// Whether we may open a uprobe as a perf event.
pub(super) fn uprobe_events() -> Support {
    let Some(source) = uprobe_pmu() else { return Support::Unknown("no such event source".to_owned()) };
    // struct perf_event_attr in its first size, 64 bytes. The path of the file is empty. The kernel refuses
    // this with EINVAL, but only to callers that may open such an event.
    let mut attributes = [0_u32; 16];
    [attributes[0], attributes[1]] = [source, 64];
    let (own_process, any_cpu, no_group, flags) = (0, -1, -1, 0);
    // SAFETY: the kernel reads the number of bytes that the size field gives, and the attributes have this
    // size.
    let result = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), own_process, any_cpu, no_group, flags)
    };
    let error = io::Error::last_os_error();
    match (i32::try_from(result), error.raw_os_error()) {
        (Ok(fd), _) if fd >= 0 => {
            // SAFETY: the call has just returned this descriptor, and nothing else owns it. We expect an
            // error instead, and close the descriptor at once.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Support::Yes
        }
        (_, Some(libc::EINVAL)) => Support::Yes,
        (_, Some(libc::EACCES | libc::EPERM)) => Support::No,
        _ => Support::Unknown(error.to_string()),
    }
}

/// Asks for all features of BPF programs at probes.
pub(super) fn probes() -> Probes {
    let helper = |helper| Support::from_aya(is_helper_supported(ProgramType::KProbe, helper));
    let (uprobe_multi, uprobe_multi_pid) = uprobe_multi();
    Probes {
        programs: Support::from_aya(is_program_supported(ProgramType::KProbe)),
        ring_buffers: Support::from_aya(is_map_supported(MapType::RingBuf).map_err(ProgramError::from)),
        cookies: helper(BpfHelper::BPF_FUNC_get_attach_cookie),
        bpf_loop: helper(BpfHelper::BPF_FUNC_loop),
        send_signal: helper(BpfHelper::BPF_FUNC_send_signal_thread),
        kernel_reads: helper(BpfHelper::BPF_FUNC_probe_read_kernel),
        uprobe_multi,
        uprobe_multi_pid,
    }
}

/// Whether one link can have many uprobes, and whether its PID means the process.
///
/// We ask for a link into the directory `/`. A kernel that knows these links refuses this with EBADF. We ask
/// again with a negative PID. If the kernel takes the PID as that of a process, it refuses the PID first,
/// with EINVAL (46ba0e49b642, in Linux 6.10 and some stable series).
fn uprobe_multi() -> (Support, Support) {
    let program = match load_uprobe_multi_program() {
        Ok(program) => program,
        Err(error) => {
            let answer = match error.raw_os_error() {
                Some(libc::EINVAL | libc::E2BIG) => Support::No,
                _ => Support::Unknown(error.to_string()),
            };
            return (answer.clone(), answer);
        }
    };
    let refused_with = |pid| link_into_root_directory(&program, pid).raw_os_error();
    match (refused_with(0), refused_with(-1)) {
        (Some(libc::EBADF), Some(libc::EINVAL)) => (Support::Yes, Support::Yes),
        (Some(libc::EBADF), _) => (Support::Yes, Support::No),
        _ => (Support::No, Support::No),
    }
}

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;

/// `union bpf_attr` for BPF_PROG_LOAD, up to the last field that we set.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    version_and_flags: u64,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

/// `union bpf_attr` for BPF_LINK_CREATE with `uprobe_multi`.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    semaphores: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: i32,
    padding: u32,
}

fn load_uprobe_multi_program() -> io::Result<OwnedFd> {
    // The program is: r0 = 0; exit.
    let instructions: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let license: &CStr = c"GPL";
    let load = ProgramLoad {
        program_type: BPF_PROG_TYPE_KPROBE,
        instruction_count: 2,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        expected_attach_type: BPF_TRACE_UPROBE_MULTI,
        ..ProgramLoad::default()
    };
    let fd = bpf_call(BPF_PROG_LOAD, &load)?;
    // SAFETY: the call has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks for a link that no kernel makes, since its file is a directory. Returns the kernel's error.
fn link_into_root_directory(program: &OwnedFd, pid: i32) -> io::Error {
    let path: &CStr = c"/";
    let offsets = [0_u64];
    let link = LinkCreate {
        program: program.as_raw_fd().cast_unsigned(),
        attach_type: BPF_TRACE_UPROBE_MULTI,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        count: 1,
        pid,
        ..LinkCreate::default()
    };
    match bpf_call(BPF_LINK_CREATE, &link) {
        Err(error) => error,
        Ok(fd) => {
            // SAFETY: the call has just returned this descriptor, and nothing else owns it. Closing it
            // removes the link.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            io::Error::other("a link into a directory was accepted")
        }
    }
}

fn bpf_call<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes at `attributes`, which stays borrowed during the call.
    // The pointers inside lead to memory that the callers keep alive, and that the kernel only reads.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { i32::try_from(result).map_err(io::Error::other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn attributes_lie_where_the_kernel_reads_them() {
        // The expected offsets are from include/uapi/linux/bpf.h.
        assert_eq!(offset_of!(ProgramLoad, expected_attach_type), 68);
        assert_eq!(offset_of!(LinkCreate, path), 16);
        assert_eq!(offset_of!(LinkCreate, pid), 56);
    }

    #[test]
    fn answers_of_the_running_kernel_agree_with_each_other() {
        if bpf() != Support::Yes {
            speed_bump_testing::skip!("bpf(2) cannot be used here: {:?}", bpf());
            return;
        }
        let probes = probes();
        if let Support::Unknown(reason) = &probes.programs {
            speed_bump_testing::skip!("programs cannot be loaded here: {reason}");
            return;
        }
        // A kernel with a later feature always has the earlier features.
        assert!(probes.cookies == Support::No || probes.ring_buffers == Support::Yes);
        assert!(probes.bpf_loop == Support::No || probes.cookies == Support::Yes);
        assert!(probes.uprobe_multi == Support::No || probes.bpf_loop == Support::Yes);
        assert!(probes.uprobe_multi_pid == Support::No || probes.uprobe_multi == Support::Yes);
    }
}
