//! All facts about the running kernel.

use super::{
    config::KernelConfig,
    namespace::Namespace,
    support::{self, Support},
    version::KernelVersion,
};

/// What the kernel is, offers and restricts. Plain data, so that tests can try every case on any machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Release as uname(2) gives it.
    pub release: String,
    /// Its first two numbers; 0.0 if it has none.
    pub version: KernelVersion,
    /// Architecture as uname(2) gives it.
    pub machine: String,
    /// Build options, where they can be read.
    pub config: Option<KernelConfig>,
    /// Whether sysfs lists event sources at all.
    pub event_sources: bool,
    /// Type number of the uprobe event source (CONFIG_UPROBE_EVENTS, since 4.17).
    pub uprobe_pmu: Option<u32>,
    /// Whether that source can raise USDT semaphores (since 4.20).
    pub semaphores: bool,
    /// bpf(2) (CONFIG_BPF_SYSCALL).
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
    /// Such a link's PID means the process (6.10).
    pub uprobe_multi_pid: Support,
    /// Type information of the kernel (CONFIG_DEBUG_INFO_BTF).
    pub btf: bool,
    /// /proc/sys/kernel/perf_event_paranoid.
    pub perf_event_paranoid: Option<i32>,
    /// /proc/sys/kernel/unprivileged_bpf_disabled.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// /proc/sys/kernel/yama/ptrace_scope.
    pub ptrace_scope: Option<i32>,
    /// Kernel lockdown; absent where the kernel has none or does not show it.
    pub lockdown: Option<Lockdown>,
    /// Whether our PIDs are those of the initial PID namespace.
    pub initial_pid_namespace: Option<bool>,
}

/// How far the kernel is locked down against root (kernel_lockdown(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// Not at all.
    None,
    /// Root cannot change the kernel: no unsigned modules.
    Integrity,
    /// Root cannot read the kernel's memory either: nor can BPF programs.
    Confidentiality,
}

impl Lockdown {
    /// Reads /sys/kernel/security/lockdown: all values, the one in force in brackets.
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
    /// Asks the running kernel. A fact that it does not give is absent or unknown. Changes nothing.
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
