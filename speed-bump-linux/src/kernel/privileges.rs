//! The capabilities that we have, and the capabilities that attaching needs.

use super::{KernelFacts, KernelVersion, Support, namespace::Namespace, support};
use crate::{capability::Capability, process::status::Status};

/// Our privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// The effective capabilities, a bit for each.
    pub effective: u64,
    /// Whether our capabilities apply to the whole kernel, and not only inside a container's user namespace.
    pub in_initial_user_namespace: bool,
    /// Whether opening a uprobe as a perf event needs CAP_SYS_ADMIN in this kernel. Earlier kernels only need
    /// CAP_PERFMON; this changed in 6.16, and in stable series in July 2025 (CVE-2025-38466).
    pub uprobe_events_need_sys_admin: bool,
    /// Whether the kernel refuses to open a uprobe as a perf event although we have CAP_SYS_ADMIN.
    pub uprobe_events_are_forbidden: bool,
    /// Whether a seccomp filter applies to this tool.
    pub are_filtered: bool,
}

/// How we attach uprobes. This decides which capabilities we need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachBy {
    /// One perf event for each site.
    PerfEvent,
    /// One link for many sites (`uprobe_multi`, 6.6). CAP_BPF and CAP_PERFMON are then enough in all kernels.
    UprobeMulti,
}

/// Why we may not attach anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivilegeError {
    /// We lack capabilities.
    #[error("missing {}: use sudo, or `setcap {}` on the program", list(.missing, ", "), setcap(.missing))]
    Missing {
        /// The capabilities that attaching needs and we lack.
        missing: Vec<Capability>,
    },
    /// We have the capabilities, but only inside a user namespace.
    #[error(
        "our capabilities are those of a user namespace (a rootless container, or `unshare --user`), and \
         {} count only outside it: run as root of the machine", list(.needed, " and ")
    )]
    InUserNamespace {
        /// The capabilities that attaching needs.
        needed: Vec<Capability>,
    },
    /// We have the capabilities, but the kernel still refuses a system call.
    #[error("{call} answers \"{answer}\", although we hold the capabilities for it: {}", .by.way_out())]
    CallForbidden {
        /// The system call.
        call: &'static str,
        /// The system's error for the call.
        answer: String,
        /// Who refuses it.
        by: Forbidder,
    },
    /// /proc/self/status could not be read.
    #[error("cannot read our own capabilities from /proc/self/status: mount proc on /proc")]
    Unreadable,
}

/// Who refuses a system call for which we have the capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidder {
    /// A seccomp filter that applies to this tool, such as a container's.
    OurFilter,
    /// This is unknown.
    Unseen,
}

impl Forbidder {
    /// The part of the message that names the forbidder and gives the way out.
    pub fn way_out(self) -> &'static str {
        match self {
            Self::OurFilter => {
                "the seccomp filter that this tool runs under forbids it: allow it there (docker: \
                 --cap-add SYS_ADMIN, for which the default profile allows it, or --security-opt \
                 seccomp=PROFILE), or run outside the container"
            }
            Self::Unseen => {
                "a security module (SELinux, AppArmor, a sandbox) forbids it: look into the audit log, or \
                 run outside the container"
            }
        }
    }
}

fn list(capabilities: &[Capability], separator: &str) -> String {
    capabilities.iter().map(Capability::to_string).collect::<Vec<_>>().join(separator)
}

fn setcap(capabilities: &[Capability]) -> String {
    format!("{}+ep", list(capabilities, ",").to_lowercase())
}

impl Privileges {
    /// The capabilities that every attach needs. If [`Process::open`](crate::process::Process::open) refuses
    /// a process without it, we need CAP_SYS_PTRACE too.
    pub const NEEDED: [Capability; 2] = [Capability::Bpf, Capability::Perfmon];

    /// Reads the present privileges of the calling thread.
    pub fn read() -> Result<Self, PrivilegeError> {
        let status = Status::own().ok_or(PrivilegeError::Unreadable)?;
        let mut privileges = Self {
            effective: status.credentials.effective,
            // A kernel without user namespaces has no such file, and only the initial namespace.
            in_initial_user_namespace: Namespace::User.is_initial().unwrap_or(true),
            uprobe_events_need_sys_admin: false,
            uprobe_events_are_forbidden: false,
            are_filtered: status.seccomp.is_some_and(|mode| mode != 0),
        };
        let events = support::uprobe_events();
        privileges.uprobe_events_are_forbidden =
            events == Support::No && Capability::SysAdmin.is_in(privileges.effective);
        let only_perfmon = Capability::Perfmon.is_in(privileges.effective)
            && !Capability::SysAdmin.is_in(privileges.effective);
        privileges.uprobe_events_need_sys_admin = match events {
            Support::Yes if only_perfmon => false,
            Support::No if only_perfmon => true,
            // The kernel's answer does not show whether the other capability is needed.
            _ => KernelVersion::running() >= KernelVersion::new(6, 16),
        };
        Ok(privileges)
    }

    /// Whether we have a capability. CAP_SYS_ADMIN is enough if it includes the capability.
    pub fn has(&self, capability: Capability) -> bool {
        capability.is_in(self.effective)
            || (capability.is_part_of_sys_admin() && Capability::SysAdmin.is_in(self.effective))
    }

    /// The capabilities that attaching needs and we lack.
    pub fn missing(&self, by: AttachBy) -> Vec<Capability> {
        let events = by == AttachBy::PerfEvent && self.uprobe_events_need_sys_admin;
        let needed = Self::NEEDED.into_iter().chain(events.then_some(Capability::SysAdmin));
        needed.filter(|capability| !self.has(*capability)).collect()
    }

    /// Returns an error if we lack privileges for attaching.
    pub fn require(&self, by: AttachBy) -> Result<(), PrivilegeError> {
        let missing = self.missing(by);
        if !missing.is_empty() {
            return Err(PrivilegeError::Missing { missing });
        }
        if !self.in_initial_user_namespace {
            return Err(PrivilegeError::InUserNamespace { needed: Self::NEEDED.to_vec() });
        }
        Ok(())
    }

    /// Fails if the kernel refuses a system call that attaching needs, although we have the capabilities.
    /// Must be called after [`require`](Self::require) has passed.
    pub fn require_calls(&self, kernel: &KernelFacts) -> Result<(), PrivilegeError> {
        let forbidden = |call, answer: &str| {
            Err(PrivilegeError::CallForbidden { call, answer: answer.to_owned(), by: self.forbidder() })
        };
        match &kernel.bpf {
            Support::Unknown(answer) => forbidden("bpf(2)", answer),
            _ if kernel.attach_by() == AttachBy::PerfEvent && self.uprobe_events_are_forbidden => {
                forbidden("perf_event_open(2)", "not permitted")
            }
            _ => Ok(()),
        }
    }

    /// Who refuses a system call for which we have the capabilities.
    pub fn forbidder(&self) -> Forbidder {
        if self.are_filtered { Forbidder::OurFilter } else { Forbidder::Unseen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Capability::{Bpf, CheckpointRestore, Perfmon, SysAdmin, SysPtrace};

    fn holding(capabilities: &[Capability]) -> Privileges {
        let effective = capabilities.iter().fold(0, |set, capability| set | 1 << capability.number());
        Privileges {
            effective,
            in_initial_user_namespace: true,
            uprobe_events_need_sys_admin: false,
            uprobe_events_are_forbidden: false,
            are_filtered: false,
        }
    }

    fn require(privileges: Privileges) -> Result<(), PrivilegeError> {
        privileges.require(AttachBy::PerfEvent)
    }

    #[test]
    fn the_missing_ones_are_named() {
        for (held, missing) in [
            (&[][..], &[Bpf, Perfmon][..]),
            (&[SysPtrace], &[Bpf, Perfmon]),
            (&[Bpf], &[Perfmon]),
            (&[Perfmon], &[Bpf]),
        ] {
            let error = PrivilegeError::Missing { missing: missing.to_vec() };
            assert_eq!(require(holding(held)), Err(error), "{held:?}");
        }
        let message = require(holding(&[])).map_or_else(|error| error.to_string(), |()| String::new());
        assert!(message.contains("missing CAP_BPF, CAP_PERFMON"), "{message}");
        assert!(message.contains("setcap cap_bpf,cap_perfmon+ep"), "{message}");
    }

    #[test]
    fn sys_admin_stands_for_those_split_off_it() {
        let admin = holding(&[SysAdmin]);
        assert_eq!(require(admin), Ok(()));
        assert!(admin.has(CheckpointRestore));
        assert!(!admin.has(SysPtrace));
        assert_eq!(require(holding(&[Bpf, Perfmon])), Ok(()));
    }

    #[test]
    fn capabilities_of_a_user_namespace_do_not_count() {
        let inside = Privileges { in_initial_user_namespace: false, ..holding(&[SysAdmin]) };
        assert!(matches!(require(inside), Err(PrivilegeError::InUserNamespace { .. })));
    }

    #[test]
    fn a_call_that_is_refused_in_spite_of_the_capabilities_is_named_with_who_refuses_it() {
        let kernel = |bpf, multi: Support| KernelFacts {
            bpf,
            uprobe_multi: multi.clone(),
            uprobe_multi_pid: multi,
            ..KernelFacts::default()
        };
        let refused = || Support::Unknown("Operation not permitted".to_owned());
        let all = holding(&[Bpf, Perfmon, SysAdmin]);
        let filtered = Privileges { are_filtered: true, uprobe_events_are_forbidden: true, ..all };
        let why = |privileges: Privileges, kernel: &KernelFacts| {
            privileges.require_calls(kernel).map_or_else(|error| error.to_string(), |()| String::new())
        };
        let text = why(filtered, &kernel(refused(), Support::Yes));
        assert!(text.contains("bpf(2) answers") && text.contains("seccomp filter"), "{text}");
        let text = why(all, &kernel(refused(), Support::Yes));
        assert!(text.contains("bpf(2) answers") && text.contains("security module"), "{text}");
        // Perf events are needed only if the kernel has no other links.
        assert_eq!(why(filtered, &kernel(Support::Yes, Support::Yes)), "");
        let text = why(filtered, &kernel(Support::Yes, Support::No));
        assert!(text.contains("perf_event_open(2)") && text.contains("seccomp filter"), "{text}");
        assert_eq!(why(all, &kernel(Support::Yes, Support::No)), "");
    }

    #[test]
    fn kernels_that_want_sys_admin_for_events_want_it_for_nothing_else() {
        let strict = |held| Privileges { uprobe_events_need_sys_admin: true, ..holding(held) };
        let missing = |held, by| strict(held).missing(by);
        assert_eq!(missing(&[Bpf, Perfmon], AttachBy::PerfEvent), [SysAdmin]);
        assert_eq!(missing(&[Bpf, Perfmon], AttachBy::UprobeMulti), []);
        assert_eq!(missing(&[SysAdmin], AttachBy::PerfEvent), []);
        assert_eq!(missing(&[], AttachBy::PerfEvent), [Bpf, Perfmon, SysAdmin]);
    }
}
