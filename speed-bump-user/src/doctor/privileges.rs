//! What we may do: each capability, and the settings that bind those who lack it.

use super::Check;
use crate::{
    capability::Capability,
    kernel::{AttachBy, KernelFacts, PrivilegeError, Privileges},
};

/// Looks at our privileges.
pub(super) fn checks(kernel: &KernelFacts, privileges: &Result<Privileges, PrivilegeError>) -> Vec<Check> {
    let privileges = match privileges {
        Ok(privileges) => privileges,
        Err(error) => return vec![Check::fail("capabilities", error.to_string(), "mount proc on /proc")],
    };
    let mut checks = Vec::new();
    if !privileges.in_initial_user_namespace {
        let detail = "ours is a container's or a user's own: its capabilities do not reach BPF and uprobes";
        checks.push(Check::fail("user namespace", detail, "run as root of the machine"));
    }
    checks.extend(CAPABILITIES.map(|(held, purpose)| capability(privileges, held, purpose)));
    checks.extend([perf_event_paranoid(kernel, privileges), yama(kernel, privileges)]);
    checks
}

/// What each capability is for.
const CAPABILITIES: [(Capability, &str); 7] = [
    (Capability::Bpf, "loads BPF programs"),
    (Capability::Perfmon, "loads BPF programs for probes, and opens uprobes"),
    (Capability::SysPtrace, "looks into processes of other users, and of changed credentials"),
    (Capability::CheckpointRestore, "opens programs that were deleted or replaced on disk"),
    (Capability::DacReadSearch, "reads programs and debug files that our user may not read"),
    (Capability::SysAdmin, "stands for CAP_BPF, CAP_PERFMON and CAP_CHECKPOINT_RESTORE"),
    (Capability::SysResource, "lifts the limits on open files and locked memory"),
];

fn capability(privileges: &Privileges, capability: Capability, purpose: &str) -> Check {
    let name = capability.to_string();
    let way_out = format!("use sudo, or `setcap {}+ep` on the program", name.to_lowercase());
    if capability.is_in(privileges.effective) {
        return Check::pass(name, format!("held; {purpose}"));
    }
    if privileges.has(capability) {
        return Check::pass(name, format!("held through CAP_SYS_ADMIN; {purpose}"));
    }
    match capability {
        Capability::SysAdmin if privileges.missing(AttachBy::PerfEvent).contains(&capability) => {
            let detail = "missing; this kernel asks for it to open uprobes (CVE-2025-38466)";
            Check::fail(name, detail, way_out)
        }
        _ if privileges.missing(AttachBy::PerfEvent).contains(&capability) => {
            Check::fail(name, format!("missing; {purpose}"), way_out)
        }
        Capability::SysAdmin | Capability::SysResource => {
            Check::skip(name, format!("not held, and not needed; {purpose}"))
        }
        _ => Check::warn(name, format!("missing; {purpose}"), way_out),
    }
}

fn perf_event_paranoid(kernel: &KernelFacts, privileges: &Privileges) -> Check {
    let name = "perf_event_paranoid";
    match kernel.perf_event_paranoid {
        None => Check::fail(
            name,
            "/proc/sys/kernel/perf_event_paranoid is missing: no perf events",
            "use a kernel built with CONFIG_PERF_EVENTS=y",
        ),
        Some(level) if privileges.has(Capability::Perfmon) => {
            Check::pass(name, format!("{level}; does not apply, with CAP_PERFMON"))
        }
        Some(level) => Check::skip(name, format!("{level}; uprobes need a capability whatever the level")),
    }
}

fn yama(kernel: &KernelFacts, privileges: &Privileges) -> Check {
    let name = "yama/ptrace_scope";
    let ptrace = privileges.has(Capability::SysPtrace);
    match kernel.ptrace_scope {
        None => Check::pass(name, "no Yama"),
        Some(0) => Check::pass(name, "0: no restriction"),
        Some(scope @ 1..=2) if ptrace => {
            Check::pass(name, format!("{scope}; does not apply, with CAP_SYS_PTRACE"))
        }
        Some(scope @ 1..=2) => Check::warn(
            name,
            format!(
                "{scope}: the memory of processes cannot be read, so Python and IFUNC targets are not \
                 resolved"
            ),
            "use sudo, grant the program CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0",
        ),
        Some(scope) => Check::warn(
            name,
            format!(
                "{scope}: nobody can read the memory of processes, so Python and IFUNC targets are not \
                 resolved"
            ),
            "change the setting and reboot: it cannot be lowered at run time",
        ),
    }
}
