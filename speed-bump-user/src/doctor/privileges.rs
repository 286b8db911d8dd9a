//! The tool's privileges: each capability, and the settings that apply without it.

use super::Check;
use crate::{
    capability::Capability,
    kernel::{KernelFacts, PrivilegeError, Privileges},
    process::{
        access::{AccessFacts, AccessMode, DenialReason, denial},
        status::Credentials,
    },
};

/// Checks the tool's privileges.
pub(super) fn checks(kernel: &KernelFacts, privileges: &Result<Privileges, PrivilegeError>) -> Vec<Check> {
    let privileges = match privileges {
        Ok(privileges) => privileges,
        Err(error) => return vec![Check::fail("capabilities", error.to_string(), "mount proc on /proc")],
    };
    let mut checks = Vec::new();
    if !privileges.in_initial_user_namespace {
        let detail = "the tool runs in a container's or a user's own namespace, whose capabilities do \
                      not apply to BPF and uprobes";
        checks.push(Check::fail("user namespace", detail, "run as root of the machine"));
    }
    let missing = privileges.missing(kernel.attach_by());
    checks.extend(CAPABILITIES.map(|(held, purpose)| capability(privileges, &missing, held, purpose)));
    checks.extend([perf_event_paranoid(kernel, privileges), yama(kernel, privileges)]);
    checks
}

/// Purpose of each capability.
const CAPABILITIES: [(Capability, &str); 8] = [
    (Capability::Bpf, "loads BPF programs"),
    (Capability::Perfmon, "loads BPF programs for probes, and opens uprobes"),
    (Capability::SysPtrace, "inspects processes of other users, and processes with changed credentials"),
    (Capability::CheckpointRestore, "opens programs that were deleted or replaced on disk"),
    (Capability::DacOverride, "loads the helper into Python processes of other users"),
    (Capability::DacReadSearch, "reads programs and debug files that the tool's user may not read"),
    (
        Capability::SysAdmin,
        "includes CAP_BPF, CAP_PERFMON and CAP_CHECKPOINT_RESTORE, and loads the helper into Python \
         processes with a seccomp filter",
    ),
    (Capability::SysResource, "lifts the limits on open files and locked memory"),
];

fn capability(
    privileges: &Privileges,
    missing: &[Capability],
    capability: Capability,
    purpose: &str,
) -> Check {
    let name = capability.to_string();
    let way_out = format!("use sudo, or `setcap {}+ep` on the program", name.to_lowercase());
    if capability.is_in(privileges.effective) {
        return Check::pass(name, format!("held; {purpose}"));
    }
    if privileges.has(capability) {
        return Check::pass(name, format!("held through CAP_SYS_ADMIN; {purpose}"));
    }
    match capability {
        Capability::SysAdmin if missing.contains(&capability) => {
            let detail = "missing; this kernel requires it to open uprobes (CVE-2025-38466)";
            Check::fail(name, detail, way_out)
        }
        _ if missing.contains(&capability) => Check::fail(name, format!("missing; {purpose}"), way_out),
        Capability::SysAdmin | Capability::SysResource => {
            Check::skip(name, format!("not held, and usually not needed; {purpose}"))
        }
        Capability::DacReadSearch if privileges.has(Capability::DacOverride) => {
            Check::skip(name, format!("not held, and not needed with CAP_DAC_OVERRIDE; {purpose}"))
        }
        _ => Check::warn(name, format!("missing; {purpose}"), way_out),
    }
}

fn perf_event_paranoid(kernel: &KernelFacts, privileges: &Privileges) -> Check {
    let name = "perf_event_paranoid";
    match kernel.perf_event_paranoid {
        None => Check::skip(name, "/proc/sys/kernel/perf_event_paranoid cannot be read"),
        Some(level) if privileges.has(Capability::Perfmon) => {
            Check::pass(name, format!("{level}; does not apply, with CAP_PERFMON"))
        }
        Some(level) => Check::skip(name, format!("{level}; uprobes need a capability whatever the level")),
    }
}

fn yama(kernel: &KernelFacts, privileges: &Privileges) -> Check {
    let name = "yama/ptrace_scope";
    let Some(scope) = kernel.ptrace_scope else { return Check::pass(name, "no Yama") };
    // The reason with which a process of the tool's user would be refused.
    let user = Credentials { users: [0; 4], groups: [0; 4], permitted: 0, effective: 0 };
    let facts = AccessFacts {
        mode: AccessMode::Attach,
        caller: Credentials { effective: privileges.effective, ..user },
        target: user,
        proc_owner: None,
        ptrace_scope: u32::try_from(scope).ok(),
    };
    match denial(&facts) {
        why @ (DenialReason::Yama { .. } | DenialReason::YamaNoAttach) => Check::warn(
            name,
            format!(
                "{scope}: the memory of processes cannot be read, so Python and IFUNC targets are not \
                 resolved"
            ),
            why.to_string(),
        ),
        _ if scope == 0 => Check::pass(name, "0: no restriction"),
        _ => Check::pass(name, format!("{scope}; does not apply, with CAP_SYS_PTRACE")),
    }
}
