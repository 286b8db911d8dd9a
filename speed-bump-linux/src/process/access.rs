//! Why the kernel forbids inspecting a process. The rules are from ptrace(2), "Ptrace access mode checking".
//!
//! The kernel decides, by refusing an open. This module only finds out which rule applied, so that we can
//! tell the user the way out. [`denial`] is a pure function of the facts.

use super::{directory::ProcDirectory, status::Credentials, status::Status};
use crate::capability::Capability;

/// The kind of access for which we asked the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Mappings, program, file descriptors (`PTRACE_MODE_READ`).
    Read,
    /// Memory and control (`PTRACE_MODE_ATTACH`).
    Attach,
}

/// The facts that the rules use.
#[derive(Clone, Copy, Debug)]
pub struct AccessFacts {
    /// The access for which we asked.
    pub mode: AccessMode,
    /// Our credentials.
    pub caller: Credentials,
    /// The process's credentials.
    pub target: Credentials,
    /// The owner of the files in the process's /proc directory; `None` if unknown. If the owner is root, and
    /// not the process's own user, the process is not dumpable.
    pub proc_owner: Option<u32>,
    /// The value of /proc/sys/kernel/yama/ptrace_scope; `None` without Yama.
    pub ptrace_scope: Option<u32>,
}

/// The rule that forbids the access. Each message ends with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DenialReason {
    /// The process belongs to another user.
    #[error(
        "it runs as user {target} and we as user {ours}, without CAP_SYS_PTRACE: use sudo, or grant the \
         program CAP_SYS_PTRACE"
    )]
    OtherUser {
        /// The process's user.
        target: u32,
        /// The user of this tool.
        ours: u32,
    },
    /// The process belongs to another group.
    #[error(
        "it runs as group {target} and we as group {ours}, without CAP_SYS_PTRACE: use sudo, or grant the \
         program CAP_SYS_PTRACE"
    )]
    OtherGroup {
        /// The process's group.
        target: u32,
        /// The group of this tool.
        ours: u32,
    },
    /// The process has changed its credentials, runs a program that its user may not read, or has made itself
    /// not dumpable.
    #[error(
        "the process is not dumpable (it changed its user, or runs a program its user may not read, or \
         called prctl(PR_SET_DUMPABLE)), and we lack CAP_SYS_PTRACE: use sudo, or grant the program \
         CAP_SYS_PTRACE"
    )]
    NotDumpable,
    /// The process has capabilities that we lack.
    #[error(
        "the process holds capabilities that we do not, and we lack CAP_SYS_PTRACE: use sudo, or grant the \
         program CAP_SYS_PTRACE"
    )]
    MorePrivileged,
    /// Yama only allows a declared debugger or the parent to attach.
    #[error(
        "Yama restricts attaching (kernel.yama.ptrace_scope = {scope}), and we lack CAP_SYS_PTRACE: use \
         sudo, grant the program CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"
    )]
    Yama {
        /// The setting, 1 or 2.
        scope: u32,
    },
    /// Yama forbids all attaching until the next boot.
    #[error(
        "Yama forbids all attaching (kernel.yama.ptrace_scope = 3), whatever the privileges, and only a \
         reboot can change it"
    )]
    YamaNoAttach,
    /// The file of the process's memory belongs to another user.
    #[error(
        "its memory is a file of user {owner} in /proc, and we are user {ours}, without CAP_DAC_OVERRIDE: \
         use sudo, or grant the program CAP_DAC_OVERRIDE besides CAP_SYS_PTRACE"
    )]
    OtherOwner {
        /// The owner of that file.
        owner: u32,
        /// The user of this tool.
        ours: u32,
    },
    /// None of the rules that we can check applies.
    #[error(
        "we hold what the kernel's own rules ask for ({held}); the process is in another user namespace \
         where that does not count, or a security module (SELinux, AppArmor, Landlock, a container's \
         policy) forbids it: look into the audit log, or run as root outside any container"
    )]
    Other {
        /// The rights that we have.
        held: &'static str,
    },
    /// /proc shows too little to find the rule.
    #[error("use sudo, or grant the program CAP_SYS_PTRACE")]
    Unknown,
}

impl DenialReason {
    /// The capability with which the kernel would allow the access, if there is one.
    pub fn missing(&self) -> Option<Capability> {
        match self {
            Self::YamaNoAttach | Self::Other { .. } => None,
            Self::OtherOwner { .. } => Some(Capability::DacOverride),
            _ => Some(Capability::SysPtrace),
        }
    }
}

/// The rule that forbids the access that these facts describe. The caller knows that the kernel refused the
/// access.
pub fn denial(facts: &AccessFacts) -> DenialReason {
    let AccessFacts { mode, caller, target, proc_owner, ptrace_scope } = *facts;
    let attaching = mode == AccessMode::Attach;
    if attaching && ptrace_scope == Some(3) {
        return DenialReason::YamaNoAttach;
    }
    if Capability::SysPtrace.is_in(caller.effective) {
        let ours = effective_user(&caller);
        let other = proc_owner.filter(|owner| *owner != ours);
        if let (true, Some(owner)) = (attaching, other)
            && !Capability::DacOverride.is_in(caller.effective)
        {
            return DenialReason::OtherOwner { owner, ours };
        }
        return DenialReason::Other { held: "CAP_SYS_PTRACE" };
    }
    let [.., ours] = caller.users;
    let [real, effective, saved, _] = target.users;
    if let Some(other) = [effective, real, saved].into_iter().find(|user| *user != ours) {
        return DenialReason::OtherUser { target: other, ours };
    }
    let [.., ours] = caller.groups;
    let [real, effective, saved, _] = target.groups;
    if let Some(other) = [effective, real, saved].into_iter().find(|group| *group != ours) {
        return DenialReason::OtherGroup { target: other, ours };
    }
    if proc_owner.is_some_and(|owner| owner != effective_user(&target)) {
        return DenialReason::NotDumpable;
    }
    if target.permitted & !caller.effective != 0 {
        return DenialReason::MorePrivileged;
    }
    match ptrace_scope {
        Some(scope) if attaching && scope > 0 => DenialReason::Yama { scope },
        _ => DenialReason::Other { held: "the same user and group" },
    }
}

fn effective_user(credentials: &Credentials) -> u32 {
    credentials.users[1]
}

/// Finds out why the kernel refused us the access, from what /proc now shows about the process and about us.
pub(super) fn explain(mode: AccessMode, target: &ProcDirectory) -> DenialReason {
    let status = target.read("status").ok().and_then(|text| Status::parse(&text).ok());
    let (Some(caller), Some(process)) = (Status::own(), status) else { return DenialReason::Unknown };
    denial(&AccessFacts {
        mode,
        caller: caller.credentials,
        target: process.credentials,
        proc_owner: target.owner(),
        ptrace_scope: std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAC: u64 = 1 << 1;
    const PTRACE: u64 = 1 << 19;

    fn user(id: u32) -> Credentials {
        Credentials { users: [id; 4], groups: [id; 4], permitted: 0, effective: 0 }
    }

    fn facts(mode: AccessMode, caller: Credentials, target: Credentials) -> AccessFacts {
        let proc_owner = Some(target.users[1]);
        AccessFacts { mode, caller, target, proc_owner, ptrace_scope: None }
    }

    #[test]
    fn each_rule_is_named() {
        let same = facts(AccessMode::Read, user(1000), user(1000));
        let attach = facts(AccessMode::Attach, user(1000), user(1000));
        let mut setuid = user(1000);
        setuid.users[1] = 0;
        let mut setgid = user(1000);
        setgid.groups[2] = 42;
        for (facts, expected) in [
            (facts(AccessMode::Read, user(1000), user(0)), DenialReason::OtherUser { target: 0, ours: 1000 }),
            (facts(AccessMode::Read, user(1000), setuid), DenialReason::OtherUser { target: 0, ours: 1000 }),
            (
                facts(AccessMode::Read, user(1000), setgid),
                DenialReason::OtherGroup { target: 42, ours: 1000 },
            ),
            (AccessFacts { proc_owner: Some(0), ..same }, DenialReason::NotDumpable),
            (
                AccessFacts { target: Credentials { permitted: 1 << 12, ..user(1000) }, ..same },
                DenialReason::MorePrivileged,
            ),
            (AccessFacts { ptrace_scope: Some(1), ..attach }, DenialReason::Yama { scope: 1 }),
            (AccessFacts { ptrace_scope: Some(2), ..attach }, DenialReason::Yama { scope: 2 }),
            (AccessFacts { ptrace_scope: Some(3), ..attach }, DenialReason::YamaNoAttach),
            // Yama does not restrict reading.
            (
                AccessFacts { ptrace_scope: Some(1), ..same },
                DenialReason::Other { held: "the same user and group" },
            ),
            (
                AccessFacts { caller: Credentials { effective: PTRACE, ..user(1000) }, ..same },
                DenialReason::Other { held: "CAP_SYS_PTRACE" },
            ),
            (
                AccessFacts { caller: Credentials { effective: PTRACE, ..user(0) }, ..attach },
                DenialReason::OtherOwner { owner: 1000, ours: 0 },
            ),
            (
                AccessFacts { caller: Credentials { effective: PTRACE | DAC, ..user(0) }, ..attach },
                DenialReason::Other { held: "CAP_SYS_PTRACE" },
            ),
        ] {
            assert_eq!(denial(&facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn a_permitted_capability_that_is_not_effective_does_not_help() {
        let caller = Credentials { permitted: PTRACE, ..user(1000) };
        let reason = denial(&facts(AccessMode::Read, caller, user(0)));
        assert_eq!(reason.missing(), Some(Capability::SysPtrace));
        assert!(reason.to_string().contains("CAP_SYS_PTRACE"), "{reason}");
    }
}
