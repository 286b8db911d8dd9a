//! All facts about the running kernel.

use super::{
    config::KernelConfig,
    namespace::Namespace,
    support::{self, Support},
    version::KernelVersion,
};

/// What the kernel is, what it can do, and what it forbids. This is plain data, so that tests can try every
/// case on any machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// The release, from uname(2).
    pub release: String,
    /// The first two numbers of the release; 0.0 if it has none.
    pub version: KernelVersion,
    /// The architecture, from uname(2).
    pub machine: String,
    /// The build options, if they can be read.
    pub config: Option<KernelConfig>,
    /// Whether sysfs lists event sources.
    pub event_sources: bool,
    /// The type number of the event source for uprobes (CONFIG_UPROBE_EVENTS, since 4.17).
    pub uprobe_pmu: Option<u32>,
    /// Whether this source can raise USDT semaphores (since 4.20).
    pub semaphores: bool,
    /// The system call bpf(2) (CONFIG_BPF_SYSCALL).
    pub bpf: Support,
    /// BPF programs at probes (CONFIG_BPF_EVENTS).
    pub probe_programs: Support,
    /// Ring buffers between BPF programs and us (5.8).
    pub ring_buffers: Support,
    /// `bpf_get_attach_cookie` (5.15).
    pub cookies: Support,
    /// `bpf_loop` (5.17).
    pub bpf_loop: Support,
    /// `bpf_send_signal_thread` (5.5).
    pub send_signal: Support,
    /// Whether BPF programs may read kernel memory, which lockdown can forbid.
    pub kernel_reads: Support,
    /// One link for many uprobes (6.6).
    pub uprobe_multi: Support,
    /// The PID of a link for many uprobes means the process (6.10).
    pub uprobe_multi_pid: Support,
    /// Whether the kernel has type information (CONFIG_DEBUG_INFO_BTF).
    pub btf: bool,
    /// The value of /proc/sys/kernel/perf_event_paranoid.
    pub perf_event_paranoid: Option<i32>,
    /// The value of /proc/sys/kernel/unprivileged_bpf_disabled.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// The value of /proc/sys/kernel/yama/ptrace_scope.
    pub ptrace_scope: Option<i32>,
    /// The kernel's lockdown; `None` if the kernel has no lockdown or does not show it.
    pub lockdown: Option<Lockdown>,
    /// Whether we are in the initial PID namespace.
    pub initial_pid_namespace: Option<bool>,
}

/// What the kernel forbids even to root (kernel_lockdown(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// Nothing is forbidden.
    None,
    /// Root cannot change the kernel: no unsigned modules.
    Integrity,
    /// In addition, root and BPF programs cannot read the kernel's memory.
    Confidentiality,
}

impl Lockdown {
    /// Parses /sys/kernel/security/lockdown. The text has all values, with the present one in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once('[')?;
        match rest.split_once(']')?.0 {
            "none" => Some(Self::None),
            "integrity" => Some(Self::Integrity),
            "confidentiality" => Some(Self::Confidentiality),
            _ => None,
        }
    }
}

impl KernelFacts {
    /// Asks the running kernel. A fact that the kernel does not give is absent or unknown. Changes nothing.
    pub fn read() -> Self {
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy().into_owned();
        let bpf = support::bpf();
        let probes = if bpf == Support::Yes { support::probes() } else { support::Probes::same(&bpf) };
        Self {
            version: KernelVersion::running(),
            machine: uname.machine().to_string_lossy().into_owned(),
            config: KernelConfig::read(&release),
            event_sources: std::path::Path::new("/sys/bus/event_source/devices").is_dir(),
            uprobe_pmu: support::uprobe_pmu(),
            semaphores: std::path::Path::new(support::UPROBE_PMU).join("format/ref_ctr_offset").exists(),
            bpf,
            probe_programs: probes.programs,
            ring_buffers: probes.ring_buffers,
            cookies: probes.cookies,
            bpf_loop: probes.bpf_loop,
            send_signal: probes.send_signal,
            kernel_reads: probes.kernel_reads,
            uprobe_multi: probes.uprobe_multi,
            uprobe_multi_pid: probes.uprobe_multi_pid,
            btf: std::path::Path::new(super::task_offsets::VMLINUX_BTF).exists(),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            lockdown: std::fs::read_to_string("/sys/kernel/security/lockdown")
                .ok()
                .and_then(|text| Lockdown::parse(&text)),
            initial_pid_namespace: Namespace::Pid.is_initial(),
            release,
        }
    }
}

fn number<T: std::str::FromStr>(path: &str) -> Option<T> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_is_the_value_in_brackets() {
        for (text, value) in [
            ("[none] integrity confidentiality\n", Some(Lockdown::None)),
            ("none [integrity] confidentiality\n", Some(Lockdown::Integrity)),
            ("none integrity [confidentiality]\n", Some(Lockdown::Confidentiality)),
            ("none integrity", None),
            ("[", None),
            ("[later]", None),
        ] {
            assert_eq!(Lockdown::parse(text), value, "{text}");
        }
    }
}
