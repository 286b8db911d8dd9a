//! Checks of one process: what would prevent attaching to it.

use std::fs;

use super::{Check, machine::Machine, python};
use crate::{
    inject::name_of,
    process::{Mappings, Process, ProcessError, RefusalKind},
    units::Pid,
};

/// Checks a process. If the tool cannot attach to it, that is the only check.
pub(crate) fn checks(pid: Pid, machine: &Machine) -> Vec<Check> {
    let process = match Process::open(pid) {
        Ok(process) => process,
        Err(error) => return vec![refused(pid, &error)],
    };
    let mut checks = vec![kind(&process), namespaces(&process), tracer(&process), seccomp(&process)];
    checks.extend([memory(&process), files(&process)]);
    checks.extend(python::checks(&process, machine));
    checks
}

fn refused(pid: Pid, error: &ProcessError) -> Check {
    let way_out = match error.kind() {
        RefusalKind::Gone => "pass the PID of a running process".to_owned(),
        RefusalKind::Unsupported => format!("pass the PID of another process than {pid}"),
        RefusalKind::Privilege => privilege(error),
        RefusalKind::System => "see the message: the cause is this system, not the process".to_owned(),
    };
    Check::fail("process", error.to_string(), way_out)
}

/// What to do about a missing privilege.
fn privilege(error: &ProcessError) -> String {
    match error.missing() {
        Some(capability) => format!("use sudo, or grant the program {capability}"),
        None => "see the message: no capability is missing".to_owned(),
    }
}

/// A check that could not be made, mostly because the process has just ended.
fn unreadable(name: &str, error: &ProcessError) -> Check {
    Check::skip(name, error.to_string())
}

fn kind(process: &Process) -> Check {
    let comm = process.name();
    let program = process.executable().map(|path| path.display().to_string()).unwrap_or_default();
    let threads = process.threads().unwrap_or_default();
    let plural = if threads == 1 { "" } else { "s" };
    let architecture = std::env::consts::ARCH;
    Check::pass("process", format!("{comm}: {program}, {architecture}, {threads} thread{plural}"))
}

fn namespaces(process: &Process) -> Check {
    let name = "namespaces";
    let pid = match process.namespace_pid() {
        Ok(pid) => pid,
        Err(error) => return unreadable(name, &error),
    };
    let inode = |path: String| fs::read_link(path).ok();
    let differing: Vec<_> = [("mnt", "mount"), ("pid", "PID"), ("user", "user")]
        .into_iter()
        .filter(|(file, _)| {
            let theirs = inode(format!("/proc/{}/ns/{file}", process.shown_by()));
            theirs.is_some() && theirs != inode(format!("/proc/self/ns/{file}"))
        })
        .map(|(_, name)| name)
        .collect();
    if differing.is_empty() {
        Check::pass(name, "the same as the tool's")
    } else {
        Check::pass(
            name,
            format!(
                "its own: {}; its PID there is {pid}; paths are read as the process sees them",
                differing.join(", ")
            ),
        )
    }
}

fn tracer(process: &Process) -> Check {
    match process.tracer() {
        Ok(None) => Check::pass("tracer", "none"),
        Ok(Some(tracer)) => Check::warn(
            "tracer",
            format!(
                "process {tracer} ({}) traces it, and may stop it; until that ends, the helper cannot be \
                 loaded",
                name_of(tracer)
            ),
            "end the tracer if the numbers matter",
        ),
        Err(error) => unreadable("tracer", &error),
    }
}

fn seccomp(process: &Process) -> Check {
    let detail = match process.status().map(|status| status.seccomp) {
        Ok(None | Some(0)) => "none",
        // Uprobes make no system calls in the process (except uretprobe on 6.11-6.13, which is not used).
        Ok(Some(1)) => "strict mode: uprobes work, but nothing can be loaded into the process",
        Ok(Some(_)) => {
            "filtered: uprobes work; for Python, the filter decides whether the helper can be loaded"
        }
        Err(error) => return unreadable("seccomp", &error),
    };
    Check::pass("seccomp", detail)
}

fn memory(process: &Process) -> Check {
    match process.memory() {
        Ok(_) => Check::pass("memory", "can be read"),
        Err(error) => Check::warn(
            "memory",
            format!("{error}; Python and IFUNC targets are not resolved"),
            privilege(&error),
        ),
    }
}

fn files(process: &Process) -> Check {
    let name = "mapped files";
    let Mappings { files, anonymous, .. } = match process.mappings() {
        Ok(mappings) => mappings,
        Err(error) => return unreadable(name, &error),
    };
    let mut unopened = Vec::new();
    let mut elf_files = 0_usize;
    for file in &files {
        match file.open(process) {
            Ok(file) => elf_files += usize::from(file.is_elf()),
            Err(error) => unopened.push(error.to_string()),
        }
    }
    let generated = anonymous.iter().filter(|mapping| !mapping.is_the_kernels()).count();
    let detail = format!("{elf_files} ELF files, {generated} mappings of generated code");
    match unopened.first() {
        None => Check::pass(name, detail),
        Some(first) => Check::warn(
            name,
            format!(
                "{detail}; {} of {} files cannot be opened, such as: {first}",
                unopened.len(),
                files.len()
            ),
            "targets in these files cannot be slowed; see the message for each",
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::doctor::CheckStatus;

    #[test]
    fn a_process_that_is_refused_gets_one_line() {
        let own = Pid::new(std::process::id().cast_signed()).unwrap();
        let checks = checks(own, &Machine::read());
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].status, CheckStatus::Fail);
        assert!(checks[0].way_out.as_ref().unwrap().contains("pass the PID"), "{checks:?}");
    }
}
