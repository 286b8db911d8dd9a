//! What the running kernel can do, what it allows us, and whether that is enough.
//!
//! We read facts once. If we can ask the kernel to do a thing cheaply and without a change, we do so.
//! Otherwise the version number decides. Whether we can attach is a pure function of the facts.

pub mod btf;
pub mod config;
pub mod facts;
pub mod namespace;
pub mod privileges;
mod processors;
mod support;
pub mod task_offsets;
pub mod version;

pub use facts::{KernelFacts, Lockdown};
pub use privileges::{AttachBy, Forbidder, PrivilegeError, Privileges};
pub use processors::ProcessorTimes;
pub use support::Support;
pub use task_offsets::{TaskOffsets, TaskOffsetsError};
pub use version::KernelVersion;

/// Why we can attach nothing with this kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{lack}{}: {}", self.built_as(), self.way_out())]
pub struct KernelError {
    /// What the kernel lacks.
    pub lack: Lack,
    /// The running kernel's release.
    pub release: String,
    /// Whether the kernel's configuration has the build option; `None` if we cannot read the configuration.
    pub built: Option<bool>,
}

/// Things that a kernel may lack. Without each of them, we can attach nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lack {
    /// The kernel was built without the system call bpf(2).
    #[error("no BPF")]
    Bpf,
    /// /sys is not mounted, so we cannot find uprobes.
    #[error("/sys/bus/event_source is missing, so uprobes cannot be found")]
    Sysfs,
    /// The kernel does not have uprobes as events (`CONFIG_UPROBE_EVENTS`).
    #[error("no uprobes")]
    Uprobes,
    /// The kernel cannot run BPF programs at probes.
    #[error("no BPF programs at probes")]
    BpfEvents,
    /// The kernel lacks the ring buffers through which programs report events.
    #[error("no BPF ring buffers, through which the programs report forks and execs")]
    RingBuffers,
    /// The kernel forbids BPF programs to read kernel memory.
    #[error("the kernel is locked down (confidentiality): BPF programs may not read its memory")]
    KernelReads,
}

impl Lack {
    /// The build option that adds this.
    pub fn option(self) -> Option<&'static str> {
        match self {
            Self::Bpf => Some("CONFIG_BPF_SYSCALL"),
            Self::Uprobes => Some("CONFIG_UPROBE_EVENTS"),
            Self::BpfEvents => Some("CONFIG_BPF_EVENTS"),
            Self::Sysfs | Self::RingBuffers | Self::KernelReads => None,
        }
    }
}

impl KernelError {
    /// The way out.
    pub fn way_out(&self) -> String {
        match (self.lack, self.lack.option()) {
            (_, Some(option)) if self.built == Some(true) => {
                format!(
                    "it was built with {option}, so something hides it: run outside the container or sandbox"
                )
            }
            (_, Some(option)) => format!("use a kernel built with {option}=y"),
            (Lack::Sysfs, _) => "mount sysfs on /sys (in a container: the host's)".to_owned(),
            (Lack::KernelReads, _) => "boot with lockdown=integrity, or without Secure Boot".to_owned(),
            _ => "use Linux 5.8 or later; from 5.17 on delays and entry sources have no limits".to_owned(),
        }
    }

    fn built_as(&self) -> String {
        let release = &self.release;
        match (self.lack.option(), self.built) {
            (Some(option), Some(false)) => format!(" (kernel {release}, built without {option})"),
            (Some(_), None) => format!(" (kernel {release}, whose configuration cannot be read)"),
            _ => format!(" (kernel {release})"),
        }
    }
}

impl KernelFacts {
    /// Returns an error if we can attach nothing with this kernel.
    pub fn require(&self) -> Result<(), KernelError> {
        match self.lacks().next() {
            None => Ok(()),
            Some(lack) => Err(self.refusal(lack)),
        }
    }

    /// Everything that the kernel lacks, the most basic things first.
    pub fn lacks(&self) -> impl Iterator<Item = Lack> {
        let no_uprobes = if self.event_sources { Lack::Uprobes } else { Lack::Sysfs };
        [
            (self.bpf == Support::No, Lack::Bpf),
            (self.uprobe_pmu.is_none(), no_uprobes),
            (self.probe_programs == Support::No, Lack::BpfEvents),
            (!self.has_ring_buffers(), Lack::RingBuffers),
            (!self.has_kernel_reads(), Lack::KernelReads),
        ]
        .into_iter()
        .filter_map(|(lacks, lack)| lacks.then_some(lack))
    }

    /// The error about something that the kernel lacks.
    pub fn refusal(&self, lack: Lack) -> KernelError {
        let built = lack.option().and_then(|option| Some(self.config.as_ref()?.has(option)));
        KernelError { lack, release: self.release.clone(), built }
    }

    /// Whether BPF programs may read kernel memory. If the kernel gave no answer, the lockdown decides.
    fn has_kernel_reads(&self) -> bool {
        match self.kernel_reads {
            Support::Yes => true,
            // If the kernel has no probe programs at all, it gives the same answer. Then the kernel lacks
            // these programs, and not the reads.
            Support::No => self.probe_programs == Support::No || self.bpf == Support::No,
            Support::Unknown(_) => self.lockdown != Some(Lockdown::Confidentiality),
        }
    }

    /// Whether programs can write to ring buffers. If the kernel gave no answer, its version decides (5.8).
    fn has_ring_buffers(&self) -> bool {
        self.ring_buffers.or_since(self.version, KernelVersion::new(5, 8))
    }

    /// Whether a probe can have a cookie. If the kernel gave no answer, its version decides (5.15).
    pub fn has_cookies(&self) -> bool {
        self.cookies.or_since(self.version, KernelVersion::new(5, 15))
    }

    /// Whether `bpf_loop` exists. If the kernel gave no answer, its version decides (5.17).
    pub fn has_bpf_loop(&self) -> bool {
        self.bpf_loop.or_since(self.version, KernelVersion::new(5, 17))
    }

    /// Whether one link can have many uprobes. If the kernel gave no answer, its version decides (6.6).
    pub fn has_uprobe_multi(&self) -> bool {
        self.uprobe_multi.or_since(self.version, KernelVersion::new(6, 6))
    }

    /// Whether a link for many uprobes takes the PID of a process, and not of a thread. If the kernel gave no
    /// answer, its version decides. Linux 6.10 has this; from 6.12 on, return probes have it too.
    pub fn has_uprobe_multi_pid(&self) -> bool {
        self.has_uprobe_multi() && self.uprobe_multi_pid.or_since(self.version, KernelVersion::new(6, 12))
    }

    /// How we attach uprobes with this kernel. This decides which capabilities we need.
    pub fn attach_by(&self) -> AttachBy {
        if self.has_uprobe_multi_pid() { AttachBy::UprobeMulti } else { AttachBy::PerfEvent }
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
            ring_buffers: Support::Yes,
            cookies: Support::Yes,
            bpf_loop: Support::Yes,
            kernel_reads: Support::Yes,
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
                ["6.1.0, whose configuration", "CONFIG_BPF_SYSCALL=y"],
            ),
            (
                KernelFacts { bpf: Support::No, config: config("CONFIG_BPF_SYSCALL=y\n"), ..good() },
                ["6.1.0", "was built with CONFIG_BPF_SYSCALL, so something hides it"],
            ),
            (
                KernelFacts {
                    uprobe_pmu: None,
                    config: config("# CONFIG_UPROBE_EVENTS is not set\n"),
                    ..good()
                },
                ["6.1.0", "built without CONFIG_UPROBE_EVENTS)"],
            ),
            (KernelFacts { uprobe_pmu: None, event_sources: false, ..good() }, ["/sys", "mount"]),
            (KernelFacts { probe_programs: Support::No, ..good() }, ["6.1.0", "CONFIG_BPF_EVENTS"]),
            (KernelFacts { ring_buffers: Support::No, ..good() }, ["6.1.0", "5.8"]),
            (KernelFacts { kernel_reads: Support::No, ..good() }, ["locked down", "lockdown=integrity"]),
            (
                KernelFacts { kernel_reads: unknown(), lockdown: Some(Lockdown::Confidentiality), ..good() },
                ["locked down", "lockdown=integrity"],
            ),
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
