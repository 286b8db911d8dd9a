//! Checks of the machine: kernel, namespaces, limits; and through `attach`, `engines` and `privileges`, what
//! the tool may do. A pure function of facts and results of trials.

use rustix::process::{Resource, getrlimit};

use speed_bump_abi::Policy;

use super::{Check, attach, engines, privileges};
use crate::{
    capability::Capability,
    kernel::{
        KernelFacts, KernelVersion, Lack, Lockdown, PrivilegeError, Privileges, Support, TaskOffsets,
        TaskOffsetsError,
    },
    prepare::{
        PrepareError,
        host::{Host, try_signals},
    },
    probe::cost::CostTable,
    sys::breakpoint::{self, BreakpointError},
    units::Nanos,
};

/// The facts for the checks of the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The kernel.
    pub kernel: KernelFacts,
    /// The tool's privileges.
    pub privileges: Result<Privileges, PrivilegeError>,
    /// Result of an attach to functions of the tool.
    pub attach: Result<CostTable, PrepareError>,
    /// Result of signals to the tool itself; absent if nothing can be attached.
    pub signals: Option<Result<(), PrepareError>>,
    /// Offsets in `task_struct` for following children, if a session would use them.
    pub task_offsets: Result<TaskOffsets, TaskOffsetsError>,
    /// Whether a processor breakpoint can be set.
    pub breakpoints: Result<(), BreakpointError>,
    /// Open files allowed: now, and at most.
    pub open_files: Limit,
    /// Locked bytes allowed: now, and at most.
    pub locked_bytes: Limit,
}

/// A resource limit (getrlimit(2)); `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The current limit.
    pub soft: Option<u64>,
    /// The highest value without privilege.
    pub hard: Option<u64>,
}

impl Limit {
    fn read(resource: Resource) -> Self {
        let limit = getrlimit(resource);
        Self { soft: limit.current, hard: limit.maximum }
    }
}

impl Machine {
    /// Reads the facts of this machine. Tries the first steps of an attach on the tool itself.
    pub(crate) fn read() -> Self {
        let host = Host::read();
        let attach = host.try_attaching();
        let signals = attach.as_ref().ok().map(|costs| try_signals(&mut costs.clone()));
        Self {
            kernel: host.kernel,
            privileges: host.privileges,
            attach,
            signals,
            task_offsets: TaskOffsets::usable(),
            breakpoints: breakpoint::try_one(),
            open_files: Limit::read(Resource::Nofile),
            locked_bytes: Limit::read(Resource::Memlock),
        }
    }

    /// A failed check for the first of these features that the kernel lacks.
    pub(super) fn lack(&self, name: &str, lacks: &[Lack]) -> Option<Check> {
        let lack = self.kernel.lacks().find(|lack| lacks.contains(lack))?;
        let error = self.kernel.refusal(lack);
        Some(Check::fail(name, lack.to_string(), error.way_out()))
    }
}

/// Checks a machine.
pub(crate) fn checks(machine: &Machine) -> Vec<Check> {
    let kernel = &machine.kernel;
    let mut checks = vec![kernel_version(machine)];
    checks.extend(attach::checks(machine));
    checks.extend([uprobes(machine), semaphores(kernel), bpf_loop(kernel), cookies(kernel)]);
    checks.extend(engines::checks(machine));
    checks.extend(privileges::checks(kernel, &machine.privileges));
    checks.extend([lockdown(machine), pid_namespace(kernel)]);
    checks.extend([open_files(machine.open_files), locked_memory(machine)]);
    checks
}

fn kernel_version(machine: &Machine) -> Check {
    let kernel = &machine.kernel;
    let detail = format!("Linux {} on {}", kernel.release, kernel.machine);
    // A distribution may have backported features to an older kernel: the checks of the features decide.
    if let Some(check) = machine.lack("kernel", &[Lack::RingBuffers]) {
        return Check { detail: format!("{detail}: {}", check.detail), ..check };
    }
    Check::pass("kernel", detail)
}

fn uprobes(machine: &Machine) -> Check {
    let name = "uprobes";
    let source = machine.kernel.uprobe_pmu.unwrap_or_default();
    machine
        .lack(name, &[Lack::Uprobes, Lack::Sysfs])
        .unwrap_or_else(|| Check::pass(name, format!("event source {source}")))
}

fn semaphores(kernel: &KernelFacts) -> Check {
    if kernel.semaphores {
        Check::pass("USDT semaphores", "uprobes can raise them (ref_ctr_offset)")
    } else {
        let detail = "uprobes cannot raise them: USDT probes with a semaphore never fire";
        Check::warn("USDT semaphores", detail, "use Linux 4.20 or later for such probes")
    }
}

/// A check of a feature that kernels may lack; `without` says what is impossible then.
fn feature(kernel: &KernelFacts, name: &str, has: bool, answer: &Support, without: &str) -> Check {
    match answer {
        _ if !has => Check::warn(name, format!("absent: {without}"), "use Linux 5.17 or later"),
        Support::Unknown(reason) => Check::skip(
            name,
            format!("cannot be tried ({reason}), but is expected of Linux {}", kernel.version),
        ),
        _ => Check::pass(name, "tried, works"),
    }
}

fn bpf_loop(kernel: &KernelFacts) -> Check {
    let longest = Nanos(Policy::PROGRAMS_SHARE_NS);
    let without = format!(
        "delays above {longest} need the helper (`--engine signal`), Python functions are seen through the \
         helper only, and programs that start under `run` are not held until the tool is ready"
    );
    feature(kernel, "bpf_loop", kernel.has_bpf_loop(), &kernel.bpf_loop, &without)
}

fn cookies(kernel: &KernelFacts) -> Check {
    let without = "each probe site gets a BPF program of its own, and `frequency` cannot be used";
    feature(kernel, "BPF cookies", kernel.has_cookies(), &kernel.cookies, without)
}

fn lockdown(machine: &Machine) -> Check {
    let (name, kernel) = ("lockdown", &machine.kernel);
    if let Some(check) = machine.lack(name, &[Lack::KernelReads]) {
        return check;
    }
    match (kernel.lockdown, &kernel.kernel_reads) {
        (Some(Lockdown::Integrity), _) => {
            Check::pass(name, "integrity: uprobes and BPF work; unsigned kernel modules do not load")
        }
        (Some(_), _) => Check::pass(name, "none"),
        (None, Support::Yes) => Check::pass(name, "BPF programs may read kernel memory (tried)"),
        (None, _) => Check::skip(name, "/sys/kernel/security/lockdown cannot be read"),
    }
}

fn pid_namespace(kernel: &KernelFacts) -> Check {
    match kernel.initial_pid_namespace {
        Some(true) => Check::pass("PID namespace", "the machine's own"),
        // The checks `children` and `engine signal` say what follows from that.
        Some(false) => Check::pass("PID namespace", "a container's: PIDs are those of the container"),
        None => Check::skip("PID namespace", "/proc/self/ns/pid cannot be read"),
    }
}

/// Files that a large session holds open: 10,000 probe sites, one perf event each.
const MANY_FILES: u64 = 16_384;

fn open_files(limit: Limit) -> Check {
    let text = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let detail = format!("{} now, {} at most (ulimit -n)", text(limit.soft), text(limit.hard));
    if limit.hard.is_none_or(|hard| hard >= MANY_FILES) {
        Check::pass("open files", detail)
    } else {
        let detail = format!("{detail}: every probe site may take one");
        Check::warn("open files", detail, "raise the hard limit when attaching to thousands of sites")
    }
}

fn locked_memory(machine: &Machine) -> Check {
    let name = "locked memory";
    // 5.11 counts BPF memory against the control group instead (CONFIG_MEMCG).
    let exempt = machine.privileges.as_ref().is_ok_and(|held| held.has(Capability::SysResource));
    match machine.locked_bytes.soft {
        _ if machine.kernel.version >= KernelVersion::new(5, 11) => {
            Check::pass(name, "not counted for BPF maps since Linux 5.11")
        }
        None => Check::pass(name, "unlimited"),
        Some(bytes) if exempt => {
            Check::pass(name, format!("{bytes} bytes, which the tool can raise with CAP_SYS_RESOURCE"))
        }
        Some(bytes) => Check::warn(
            name,
            format!("{bytes} bytes, which BPF maps count against before Linux 5.11"),
            "run `ulimit -l unlimited` first",
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        doctor::CheckStatus::{self, Fail, Pass, Skip, Warn},
        engine::bpf::Form,
    };

    fn holding(effective: u64) -> Privileges {
        Privileges {
            effective,
            in_initial_user_namespace: true,
            uprobe_events_need_sys_admin: false,
            uprobe_events_are_forbidden: false,
            are_filtered: false,
        }
    }

    fn good() -> Machine {
        Machine {
            kernel: KernelFacts {
                release: "6.12.0".to_owned(),
                version: KernelVersion::new(6, 12),
                machine: std::env::consts::ARCH.to_owned(),
                event_sources: true,
                uprobe_pmu: Some(8),
                semaphores: true,
                bpf: Support::Yes,
                probe_programs: Support::Yes,
                ring_buffers: Support::Yes,
                cookies: Support::Yes,
                bpf_loop: Support::Yes,
                kernel_reads: Support::Yes,
                send_signal: Support::Yes,
                uprobe_multi: Support::Yes,
                uprobe_multi_pid: Support::Yes,
                perf_event_paranoid: Some(2),
                initial_pid_namespace: Some(true),
                ..KernelFacts::default()
            },
            privileges: Ok(holding(u64::MAX)),
            attach: Ok(CostTable::unknown(Form::Multi)),
            signals: Some(Ok(())),
            task_offsets: Ok(TaskOffsets { pid: 8, tgid: 12, mm: 16, ptrace: 24, ..TaskOffsets::default() }),
            breakpoints: Ok(()),
            open_files: Limit { soft: Some(1024), hard: Some(1 << 20) },
            locked_bytes: Limit { soft: Some(65536), hard: Some(65536) },
        }
    }

    fn status(machine: &Machine, name: &str) -> CheckStatus {
        checks(machine).into_iter().find(|check| check.name == name).unwrap().status
    }

    #[test]
    fn a_machine_with_everything_passes_everything() {
        for check in checks(&good()) {
            assert_eq!(check.status, Pass, "{check:?}");
        }
    }

    #[test]
    fn each_missing_feature_shows_in_its_own_line() {
        type Break = fn(&mut Machine);
        let cases: [(&str, CheckStatus, Break); 33] = [
            ("attach", Fail, |m| m.attach = Err(PrepareError::NoProcess)),
            // A personality (`setarch`) shows another architecture, and everything works.
            ("kernel", Pass, |m| m.kernel.machine = "i686".to_owned()),
            ("kernel", Fail, |m| {
                m.kernel.version = KernelVersion::new(5, 7);
                m.kernel.ring_buffers = Support::No;
            }),
            ("BPF", Fail, |m| m.kernel.bpf = Support::No),
            ("BPF", Fail, |m| m.kernel.probe_programs = Support::No),
            ("BPF", Fail, |m| m.kernel.bpf = Support::Unknown("EPERM".to_owned())),
            ("BPF", Skip, |m| {
                m.kernel.bpf = Support::Unknown("EPERM".to_owned());
                m.privileges = Ok(holding(0));
            }),
            ("uprobes", Fail, |m| m.kernel.uprobe_pmu = None),
            ("USDT semaphores", Warn, |m| m.kernel.semaphores = false),
            ("bpf_loop", Warn, |m| m.kernel.bpf_loop = Support::No),
            ("BPF cookies", Warn, |m| m.kernel.cookies = Support::No),
            ("uprobe_multi", Warn, |m| m.kernel.uprobe_multi = Support::No),
            ("uprobe_multi", Warn, |m| m.attach.as_mut().unwrap().form = Form::Single),
            ("children", Warn, |m| m.task_offsets = TaskOffsets::from_btf(b"")),
            ("CAP_BPF", Fail, |m| m.privileges = Ok(holding(0))),
            ("CAP_SYS_PTRACE", Warn, |m| {
                m.privileges = Ok(holding(1 << 21));
            }),
            ("CAP_SYS_ADMIN", Fail, |m| {
                m.kernel.uprobe_multi = Support::No;
                m.privileges =
                    Ok(Privileges { uprobe_events_need_sys_admin: true, ..holding(1 << 38 | 1 << 39) });
            }),
            // One link for many sites does not need it.
            ("CAP_SYS_ADMIN", Skip, |m| {
                m.privileges =
                    Ok(Privileges { uprobe_events_need_sys_admin: true, ..holding(1 << 38 | 1 << 39) });
            }),
            ("CAP_SYS_ADMIN", Skip, |m| m.privileges = Ok(holding(1 << 38 | 1 << 39))),
            ("user namespace", Fail, |m| {
                m.privileges = Ok(Privileges { in_initial_user_namespace: false, ..holding(u64::MAX) });
            }),
            ("lockdown", Fail, |m| m.kernel.kernel_reads = Support::No),
            ("lockdown", Skip, |m| m.kernel.kernel_reads = Support::Unknown("EPERM".to_owned())),
            ("bpf_loop", Skip, |m| m.kernel.bpf_loop = Support::Unknown("EPERM".to_owned())),
            ("lockdown", Pass, |m| m.kernel.lockdown = Some(Lockdown::Integrity)),
            ("perf_event_paranoid", Skip, |m| m.kernel.perf_event_paranoid = None),
            ("PID namespace", Pass, |m| m.kernel.initial_pid_namespace = Some(false)),
            ("yama/ptrace_scope", Warn, |m| m.kernel.ptrace_scope = Some(3)),
            ("yama/ptrace_scope", Pass, |m| m.kernel.ptrace_scope = Some(2)),
            ("open files", Warn, |m| m.open_files = Limit { soft: Some(256), hard: Some(1024) }),
            ("engine signal", Warn, |m| m.signals = Some(Err(PrepareError::NoSignals("why".to_owned())))),
            ("engine signal", Skip, |m| m.signals = None),
            ("processor breakpoints", Warn, |m| m.breakpoints = Err(BreakpointError::Taken)),
            ("locked memory", Warn, |m| {
                m.kernel.version = KernelVersion::new(5, 10);
                m.privileges = Ok(holding(0));
            }),
        ];
        for (name, expected, break_it) in cases {
            let mut machine = good();
            break_it(&mut machine);
            assert_eq!(status(&machine, name), expected, "{name}: {machine:?}");
        }
    }

    #[test]
    fn capabilities_included_in_sys_admin_are_not_missing() {
        let mut machine = good();
        machine.privileges = Ok(holding(1 << 21));
        assert_eq!(status(&machine, "CAP_BPF"), Pass);
        assert_eq!(status(&machine, "CAP_PERFMON"), Pass);
    }
}
