//! Checks whether anything forbids injecting, as far as we can know without touching the process.

use std::{os::fd::AsFd as _, path::Path};

use rustix::fs::{OFlags, PROC_SUPER_MAGIC, fstatfs};

use super::{InjectError, arch};
use crate::{
    process::{Process, control_group::Hierarchy},
    sys::{
        below::{LastLink, find_below},
        ptrace,
        remote_descriptor::Descriptors,
    },
    units::Pid,
};

/// `SECCOMP_MODE_STRICT`, as in /proc/PID/status.
const SECCOMP_STRICT: u32 = 1;

/// Fails if we must not try to inject.
pub(super) fn check(process: &Process) -> Result<(), InjectError> {
    let pid = process.pid();
    if let Some(machine) = arch::UNSUPPORTED {
        return Err(InjectError::Machine(machine));
    }
    if let Some(tracer) = process.tracer()? {
        return Err(InjectError::Traced { pid, tracer, name: name_of(tracer) });
    }
    check_traced(process)?;
    if super::task::state(process, process.shown_by()) == Some('T') {
        return Err(InjectError::Stopped { pid });
    }
    if is_frozen(process) {
        return Err(InjectError::Frozen { pid });
    }
    Ok(())
}

/// Like [`check`], for a process that we already trace and that is stopped.
pub(super) fn check_traced(process: &Process) -> Result<(), InjectError> {
    let pid = process.pid();
    if let Some(machine) = arch::UNSUPPORTED {
        return Err(InjectError::Machine(machine));
    }
    let status = process.status()?;
    if status.seccomp == Some(SECCOMP_STRICT) {
        return Err(InjectError::SeccompStrict { pid });
    }
    if status.shadow_stack {
        return Err(InjectError::ShadowStack { pid });
    }
    // Opening the memory needs the same right as tracing.
    process.memory()?;
    check_own_calls(process)?;
    if !has_proc(process) {
        return Err(InjectError::NoProc { pid });
    }
    Ok(())
}

/// Checks that the kernel allows us the system calls that we make ourselves. These calls have no effect,
/// because the thread and the descriptor that they name do not exist.
fn check_own_calls(process: &Process) -> Result<(), InjectError> {
    let pid = process.pid();
    let refused = |call| move |error| InjectError::CallRefused { pid, call, error };
    ptrace::is_callable().map_err(refused("ptrace(2)"))?;
    let descriptors = Descriptors::of_thread(process.as_fd(), pid, pid).map_err(refused("pidfd_open(2)"))?;
    match descriptors.map(|descriptors| descriptors.take(i32::MAX)) {
        Some(Err(error)) if ![Some(libc::EBADF), Some(libc::ESRCH)].contains(&error.raw_os_error()) => {
            Err(refused("pidfd_getfd(2)")(error))
        }
        _ => Ok(()),
    }
}

/// Whether the process has a proc file system at /proc, through which it finds the helper's memory file. We
/// follow a link there as the process would, below its own root.
fn has_proc(process: &Process) -> bool {
    let Ok(root) = process.open_entry("root", OFlags::PATH | OFlags::DIRECTORY) else { return false };
    let place = find_below(root.as_fd(), Path::new("/proc"), LastLink::Follow);
    place.and_then(fstatfs).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC)
}

/// A process's name.
pub fn name_of(pid: Pid) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Whether the process's control group is frozen. In the unified hierarchy `cgroup.events` shows this, in
/// older hierarchies `freezer.state` of the freezer's own hierarchy.
fn is_frozen(process: &Process) -> bool {
    process.control_groups().unwrap_or_default().iter().any(|group| {
        let says = |file: &str, wanted: &[&str]| {
            let text = std::fs::read_to_string(group.folder().join(file)).unwrap_or_default();
            text.lines().any(|line| wanted.contains(&line))
        };
        match group.hierarchy {
            Hierarchy::Unified => says("cgroup.events", &["frozen 1"]),
            // While a group is being frozen, its processes do not run either.
            Hierarchy::Legacy(_) => {
                group.has_legacy("freezer") && says("freezer.state", &["FROZEN", "FREEZING"])
            }
        }
    })
}
