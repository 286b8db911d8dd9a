//! Finds what a thread's seccomp filters would answer to the system calls of an injection. We make no call
//! for this, because a filter may kill the process for a call that the filter does not know.

pub(crate) mod filter;

use std::io;

use super::{InjectError, arch};
use crate::{
    capability::Capability,
    process::{Process, status::Status},
    sys::ptrace::Tracee,
    units::Pid,
};
use filter::{Action, Call, Verdict};

/// `SECCOMP_MODE_FILTER`, as in /proc/PID/status.
const FILTER: u32 = 2;
/// The most filters of a process. Together they have at most 32,768 instructions (`MAX_INSNS_PER_PATH`), and
/// each has at least one.
const FILTERS: usize = 32_768;

/// The name of a call, how necessary it is, and its arguments.
type Planned = (&'static str, Need, Call);

/// How necessary a system call is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The call must work.
    Works,
    /// The call may fail. An example is a new call that the C library can replace by an older one.
    MayFail,
}

/// Whether a thread has a filter.
pub(super) fn is_filtered(process: &Process, thread: Pid) -> bool {
    let status = super::task::file(process, thread, "status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.and_then(|mode| mode.trim().parse::<u32>().ok()).unwrap_or(0) >= FILTER
}

/// Checks, before we stop a thread, that the kernel will let us read its filters.
pub(super) fn check_readable(process: &Process, thread: Pid) -> Result<(), InjectError> {
    // The conditions of seccomp_get_filter (kernel/seccomp.c).
    let may_read = Status::own().is_some_and(|own| {
        own.seccomp.unwrap_or(0) == 0 && Capability::SysAdmin.is_in(own.credentials.effective)
    });
    if may_read || !is_filtered(process, thread) {
        return Ok(());
    }
    let source = io::Error::from_raw_os_error(libc::EACCES);
    Err(InjectError::SeccompUnreadable { pid: process.pid(), source })
}

/// Checks the filters of a stopped thread.
pub(super) fn check(process: &Process, tracee: &Tracee) -> Result<(), InjectError> {
    check_calls(process, tracee, &planned())
}

/// Whether a stopped thread's filters allow the call with which the kernel continues an interrupted timed
/// call.
pub(super) fn allows_restart(process: &Process, tracee: &Tracee) -> bool {
    check_calls(process, tracee, &[restart()]).is_ok()
}

fn check_calls(process: &Process, tracee: &Tracee, calls: &[Planned]) -> Result<(), InjectError> {
    let pid = process.pid();
    if !is_filtered(process, tracee.thread()) {
        return Ok(());
    }
    let mut steps = filter::STEPS;
    for index in 0..FILTERS {
        let program = match tracee.seccomp_filter(index) {
            Ok(program) => program,
            // There are no more filters.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && index > 0 => return Ok(()),
            Err(source) => return Err(InjectError::SeccompUnreadable { pid, source }),
        };
        for (name, need, call) in calls {
            let refuse = |action: String| InjectError::SeccompForbids { pid, call: name, action };
            match filter::judge(&program, call, arch::AUDIT_ARCH, &mut steps) {
                Verdict::Only(actions) => {
                    let bad = actions.into_iter().find(|action| match action {
                        Action::Allow | Action::Log => false,
                        Action::Errno(_) => *need == Need::Works,
                        _ => true,
                    });
                    if let Some(bad) = bad {
                        return Err(refuse(bad.to_string()));
                    }
                }
                Verdict::Unclear => return Err(refuse("what is too complicated to foresee".to_owned())),
            }
        }
    }
    Err(InjectError::SeccompUnreadable { pid, source: io::ErrorKind::InvalidData.into() })
}

/// The calls that we, the dynamic loader, the helper and the helper's thread make. An argument that this list
/// does not give may have any value.
fn planned() -> Vec<Planned> {
    use Need::{MayFail, Works};
    let any = |number: libc::c_long| Call::any(number);
    vec![
        ("memfd_create", Works, any(libc::SYS_memfd_create)),
        ("close", Works, any(libc::SYS_close)),
        ("openat", Works, any(libc::SYS_openat)),
        ("read", Works, any(libc::SYS_read)),
        ("pread64", Works, any(libc::SYS_pread64)),
        ("fstat", MayFail, any(libc::SYS_fstat)),
        ("newfstatat", MayFail, any(libc::SYS_newfstatat)),
        ("statx", MayFail, any(libc::SYS_statx)),
        ("getcwd", MayFail, any(libc::SYS_getcwd)),
        ("brk", MayFail, any(libc::SYS_brk)),
        ("mmap for reading", Works, any(libc::SYS_mmap).with(2, 1)),
        ("mmap for reading and writing", Works, any(libc::SYS_mmap).with(2, 3)),
        ("mmap for execution", Works, any(libc::SYS_mmap).with(2, 5)),
        ("mmap without access", Works, any(libc::SYS_mmap).with(2, 0)),
        ("mprotect for reading", Works, any(libc::SYS_mprotect).with(2, 1)),
        ("mprotect for reading and writing", Works, any(libc::SYS_mprotect).with(2, 3)),
        ("munmap", Works, any(libc::SYS_munmap)),
        ("mremap", MayFail, any(libc::SYS_mremap)),
        ("futex", Works, any(libc::SYS_futex)),
        ("rt_sigreturn", Works, any(libc::SYS_rt_sigreturn)),
        ("rt_sigprocmask", Works, any(libc::SYS_rt_sigprocmask)),
        ("rt_sigaction", MayFail, any(libc::SYS_rt_sigaction)),
        ("clone3", MayFail, any(libc::SYS_clone3)),
        // The flags of pthread_create (glibc, sysdeps/unix/sysv/linux/createthread.c). musl has the same
        // flags and one more.
        ("clone of a thread", Works, any(libc::SYS_clone).with(0, 0x003d_0f00)),
        ("set_robust_list", MayFail, any(libc::SYS_set_robust_list)),
        ("rseq", MayFail, any(libc::SYS_rseq)),
        ("madvise", MayFail, any(libc::SYS_madvise)),
        ("gettid", MayFail, any(libc::SYS_gettid)),
        ("getpid", MayFail, any(libc::SYS_getpid)),
        ("prctl", MayFail, any(libc::SYS_prctl)),
        ("sched_yield", MayFail, any(libc::SYS_sched_yield)),
        ("clock_gettime", MayFail, any(libc::SYS_clock_gettime)),
        ("clock_nanosleep", MayFail, any(libc::SYS_clock_nanosleep)),
        ("exit", Works, any(libc::SYS_exit)),
        restart(),
    ]
}

/// The system call with which the kernel continues an interrupted timed call.
fn restart() -> Planned {
    ("restart_syscall", Need::Works, Call::any(libc::SYS_restart_syscall))
}
