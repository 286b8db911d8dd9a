//! What the running kernel can do, what it lets us do, and whether that is enough.
//!
//! Facts are read once, by asking the kernel to do the thing wherever that is cheap and changes nothing;
//! the version number decides only where we may not ask. What is required is a pure function of the facts.

pub mod btf;
pub mod config;
pub mod facts;
pub mod namespace;
pub mod privileges;
mod support;
pub mod task_offsets;
pub mod version;

pub use facts::{KernelFacts, Lockdown};
pub use privileges::{Capability, PrivilegeError, Privileges};
pub use support::Support;
pub use task_offsets::{TaskOffsets, TaskOffsetsError};
pub use version::KernelVersion;

/// Why nothing can be attached with this kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// /sys is not mounted, so nothing is known of uprobes.
    #[error(
        "/sys/bus/event_source is missing, so uprobes cannot be found: mount sysfs on /sys (containers: run \
         with /sys of the host)"
    )]
    NoSysfs,
    /// No uprobes.
    #[error(
        "kernel {release} has no uprobes ({}): use a kernel built with CONFIG_UPROBE_EVENTS=y (4.17 or later)",
        cause(.built, "CONFIG_UPROBE_EVENTS")
    )]
    NoUprobes {
        /// The running kernel.
        release: String,
        /// What its configuration says of the option.
        built: Option<bool>,
    },
    /// No bpf(2).
    #[error(
        "kernel {release} has no BPF ({}): use a kernel built with CONFIG_BPF_SYSCALL=y, or leave the sandbox \
         that hides bpf(2)",
        cause(.built, "CONFIG_BPF_SYSCALL")
    )]
    NoBpf {
        /// The running kernel.
        release: String,
        /// What its configuration says of the option.
        built: Option<bool>,
    },
    /// No BPF programs for probes.
    #[error(
        "kernel {release} cannot run BPF programs at probes ({}): use a kernel built with CONFIG_BPF_EVENTS=y",
        cause(.built, "CONFIG_BPF_EVENTS")
    )]
    NoBpfEvents {
        /// The running kernel.
        release: String,
        /// What its configuration says of the option.
        built: Option<bool>,
    },
    /// No cookies, which tell probe sites apart.
    #[error(
        "kernel {release} has no BPF cookies (bpf_get_attach_cookie): use Linux 5.17 or later (5.15 brought \
         cookies, 5.17 bpf_loop)"
    )]
    NoCookies {
        /// The running kernel.
        release: String,
    },
    /// No `bpf_loop`, which spins the delay.
    #[error("kernel {release} has no bpf_loop, which spins the delays: use Linux 5.17 or later")]
    NoBpfLoop {
        /// The running kernel.
        release: String,
    },
}

fn cause(built: &Option<bool>, option: &str) -> String {
    match built {
        Some(false) => format!("built without {option}"),
        Some(true) => format!("although built with {option}: something hides it, such as a sandbox"),
        None => format!("presumably built without {option}; its configuration is not readable"),
    }
}

impl KernelFacts {
    /// Refuses a kernel with which nothing can be attached.
    pub fn require(&self) -> Result<(), KernelError> {
        let release = self.release.clone();
        let built = |option| self.config.as_ref().map(|config| config.has(option));
        if self.bpf == Support::No {
            return Err(KernelError::NoBpf { release, built: built("CONFIG_BPF_SYSCALL") });
        }
        if self.uprobe_pmu.is_none() {
            return Err(if self.event_sources {
                KernelError::NoUprobes { release, built: built("CONFIG_UPROBE_EVENTS") }
            } else {
                KernelError::NoSysfs
            });
        }
        if self.probe_programs == Support::No {
            return Err(KernelError::NoBpfEvents { release, built: built("CONFIG_BPF_EVENTS") });
        }
        if !self.has_cookies() {
            return Err(KernelError::NoCookies { release });
        }
        if !self.has_bpf_loop() {
            return Err(KernelError::NoBpfLoop { release });
        }
        Ok(())
    }

    /// Whether a probe can carry a cookie: asked, or by version (5.15).
    pub fn has_cookies(&self) -> bool {
        self.cookies.or_since(self.version, KernelVersion::new(5, 15))
    }

    /// Whether `bpf_loop` exists: asked, or by version (5.17).
    pub fn has_bpf_loop(&self) -> bool {
        self.bpf_loop.or_since(self.version, KernelVersion::new(5, 17))
    }

    /// Whether one link can carry many uprobes: asked, or by version (6.6).
    pub fn has_uprobe_multi(&self) -> bool {
        self.uprobe_multi.or_since(self.version, KernelVersion::new(6, 6))
    }

    /// Whether such a link's PID means the process and not the thread: asked, or by version. The fix is in
    /// 6.10; that its return probes agree, in 6.12.
    pub fn has_uprobe_multi_pid(&self) -> bool {
        self.has_uprobe_multi() && self.uprobe_multi_pid.or_since(self.version, KernelVersion::new(6, 12))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::KernelConfig;

    fn good() -> KernelFacts {
        KernelFacts {
            release: "6.1.0".to_owned(),
            version: KernelVersion::new(6, 1),
            bpf: Support::Yes,
            event_sources: true,
            uprobe_pmu: Some(8),
            probe_programs: Support::Yes,
            cookies: Support::Yes,
            bpf_loop: Support::Yes,
            ..KernelFacts::default()
        }
    }

    fn unknown() -> Support {
        Support::Unknown("not permitted".to_owned())
    }

    #[test]
    fn a_kernel_with_everything_passes() {
        assert_eq!(good().require(), Ok(()));
    }

    #[test]
    fn each_lack_is_refused_and_names_version_and_option() {
        let config = |text: &str| Some(KernelConfig::parse(text.as_bytes()));
        for (facts, words) in [
            (
                KernelFacts { bpf: Support::No, ..good() },
                ["6.1.0", "presumably built without CONFIG_BPF_SYSCALL"],
            ),
            (
                KernelFacts { bpf: Support::No, config: config("CONFIG_BPF_SYSCALL=y\n"), ..good() },
                ["6.1.0", "although built with CONFIG_BPF_SYSCALL"],
            ),
            (
                KernelFacts {
                    uprobe_pmu: None,
                    config: config("# CONFIG_UPROBE_EVENTS is not set\n"),
                    ..good()
                },
                ["6.1.0", "(built without CONFIG_UPROBE_EVENTS)"],
            ),
            (KernelFacts { uprobe_pmu: None, event_sources: false, ..good() }, ["/sys", "mount"]),
            (KernelFacts { probe_programs: Support::No, ..good() }, ["6.1.0", "CONFIG_BPF_EVENTS"]),
            (KernelFacts { cookies: Support::No, ..good() }, ["6.1.0", "5.15"]),
            (KernelFacts { bpf_loop: Support::No, ..good() }, ["6.1.0", "5.17"]),
        ] {
            let message = facts.require().map_or_else(|error| error.to_string(), |()| "accepted".to_owned());
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    }

    #[test]
    fn the_version_decides_only_where_asking_was_not_possible() {
        let asked = |version, bpf_loop| KernelFacts { version, bpf_loop, ..good() }.has_bpf_loop();
        assert!(asked(KernelVersion::new(5, 14), Support::Yes), "backported");
        assert!(!asked(KernelVersion::new(6, 1), Support::No), "removed");
        assert!(asked(KernelVersion::new(5, 17), unknown()));
        assert!(!asked(KernelVersion::new(5, 16), unknown()));

        let multi = |version, pid| {
            let facts = KernelFacts { version, uprobe_multi: unknown(), uprobe_multi_pid: pid, ..good() };
            (facts.has_uprobe_multi(), facts.has_uprobe_multi_pid())
        };
        assert_eq!(multi(KernelVersion::new(6, 5), Support::Yes), (false, false));
        assert_eq!(multi(KernelVersion::new(6, 6), unknown()), (true, false));
        assert_eq!(multi(KernelVersion::new(6, 12), unknown()), (true, true));
        assert_eq!(multi(KernelVersion::new(6, 6), Support::Yes), (true, true));
    }

    #[test]
    fn the_running_kernel_is_judged_without_a_panic() {
        let facts = KernelFacts::read();
        assert!(facts.version > KernelVersion::new(3, 0), "{}", facts.release);
        if let Err(error) = facts.require() {
            eprintln!("this kernel: {error}");
        }
    }
}
