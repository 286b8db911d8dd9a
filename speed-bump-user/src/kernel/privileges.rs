//! Which capabilities we hold, and which of them attaching needs.

use super::{KernelVersion, Support, namespace::Namespace, support};
use crate::{capability::Capability, process::status::Status};

/// What we may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// Effective capabilities, a bit each.
    pub effective: u64,
    /// Whether they count for the kernel at large, that is, outside a container's user namespace.
    pub in_initial_user_namespace: bool,
    /// Whether this kernel asks for CAP_SYS_ADMIN, where CAP_PERFMON was enough, to open a uprobe as a perf
    /// event: since 6.16, and in stable series since July 2025 (CVE-2025-38466).
    pub uprobe_events_need_sys_admin: bool,
}

/// How uprobes are attached, which decides what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachBy {
    /// One perf event for each site.
    PerfEvent,
    /// One link for many sites (`uprobe_multi`, 6.6): CAP_BPF and CAP_PERFMON suffice everywhere.
    UprobeMulti,
}

/// Why we may not attach anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivilegeError {
    /// Capabilities are missing.
    #[error("missing {}: use sudo, or `setcap {}` on the program", list(.missing, ", "), setcap(.missing))]
    Missing {
        /// Those that attaching needs and we lack.
        missing: Vec<Capability>,
    },
    /// They are there, but only inside a user namespace.
    #[error(
        "our capabilities are those of a user namespace (a rootless container, or `unshare --user`), and \
         {} count only outside it: run as root of the machine", list(.needed, " and ")
    )]
    InUserNamespace {
        /// Those that attaching needs.
        needed: Vec<Capability>,
    },
    /// /proc/self/status could not be read.
    #[error("cannot read our own capabilities from /proc/self/status: mount proc on /proc")]
    Unreadable,
}

fn list(capabilities: &[Capability], separator: &str) -> String {
    capabilities.iter().map(Capability::to_string).collect::<Vec<_>>().join(separator)
}

fn setcap(capabilities: &[Capability]) -> String {
    format!("{}+ep", list(capabilities, ",").to_lowercase())
}

impl Privileges {
    /// What every attach needs. CAP_SYS_PTRACE besides, for the processes that
    /// [`Process::open`](crate::process::Process::open) refuses without it.
    pub const NEEDED: [Capability; 2] = [Capability::Bpf, Capability::Perfmon];

    /// Those of the calling thread, now.
    pub fn read() -> Result<Self, PrivilegeError> {
        let status = Status::own().ok_or(PrivilegeError::Unreadable)?;
        let mut privileges = Self {
            effective: status.credentials.effective,
            // Without user namespaces there is no file, and only the initial one.
            in_initial_user_namespace: Namespace::User.is_initial().unwrap_or(true),
            uprobe_events_need_sys_admin: false,
        };
        let only_perfmon = Capability::Perfmon.is_in(privileges.effective)
            && !Capability::SysAdmin.is_in(privileges.effective);
        privileges.uprobe_events_need_sys_admin = match support::uprobe_events() {
            Support::Yes if only_perfmon => false,
            Support::No if only_perfmon => true,
            // The answer says nothing of the other capability.
            _ => KernelVersion::running() >= KernelVersion::new(6, 16),
        };
        Ok(privileges)
    }

    /// Whether we hold a capability, or CAP_SYS_ADMIN in its place where the kernel takes that.
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

    /// Refuses when attaching cannot work.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use Capability::{Bpf, CheckpointRestore, Perfmon, SysAdmin, SysPtrace};

    fn holding(capabilities: &[Capability]) -> Privileges {
        let effective = capabilities.iter().fold(0, |set, capability| set | 1 << capability.number());
        Privileges { effective, in_initial_user_namespace: true, uprobe_events_need_sys_admin: false }
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
    fn kernels_that_want_sys_admin_for_events_want_it_for_nothing_else() {
        let strict = |held| Privileges { uprobe_events_need_sys_admin: true, ..holding(held) };
        let missing = |held, by| strict(held).missing(by);
        assert_eq!(missing(&[Bpf, Perfmon], AttachBy::PerfEvent), [SysAdmin]);
        assert_eq!(missing(&[Bpf, Perfmon], AttachBy::UprobeMulti), []);
        assert_eq!(missing(&[SysAdmin], AttachBy::PerfEvent), []);
        assert_eq!(missing(&[], AttachBy::PerfEvent), [Bpf, Perfmon, SysAdmin]);
    }
}
