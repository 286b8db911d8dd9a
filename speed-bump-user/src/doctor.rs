//! The checks of `speed-bump-ebpf doctor`: what would work here, and what to do if it would not.
//!
//! An attach calls the same functions and tries the same things. Checks are data; the command line prints
//! them. They change nothing: probes are tried on functions of the tool. Only in a Python process with a
//! seccomp filter one thread is stopped for a moment.

mod attach;
mod engines;
pub(crate) mod kmod;
pub(crate) mod machine;
mod privileges;
pub(crate) mod python;
pub(crate) mod target;

use std::path::Path;

use serde::Serialize;

use crate::{
    engine::kmod::{FOLDER, Module, RECORDS, Records},
    units::Pid,
};

/// One line of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// The name of the check.
    pub name: String,
    /// The result.
    pub status: CheckStatus,
    /// Details of the result.
    pub detail: String,
    /// What to do about it, if there is something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckStatus {
    /// Works.
    Pass,
    /// Works in part, or more slowly, or not for every target.
    Warn,
    /// Nothing can be attached.
    Fail,
    /// Could not be checked, or does not matter here.
    Skip,
}

impl Check {
    /// A passed check.
    pub(crate) fn pass(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status: CheckStatus::Pass, detail: detail.into(), way_out: None }
    }

    /// A check that found a limitation.
    pub(crate) fn warn(
        name: impl Into<String>,
        detail: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        let way_out = Some(way_out.into());
        Self { name: name.into(), status: CheckStatus::Warn, detail: detail.into(), way_out }
    }

    /// A check that found that nothing can be attached.
    pub(crate) fn fail(
        name: impl Into<String>,
        detail: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self { status: CheckStatus::Fail, ..Self::warn(name, detail, way_out) }
    }

    /// A check that was not made, and why.
    pub(crate) fn skip(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { status: CheckStatus::Skip, ..Self::pass(name, reason) }
    }
}

/// Checks the machine, and a process if one is given.
pub(crate) fn checks(pid: Option<Pid>) -> Vec<Check> {
    let machine = machine::Machine::read();
    let mut checks = machine::checks(&machine);
    checks.push(kmod::check(Module::look(Path::new(FOLDER)), &Records::look(Path::new(RECORDS))));
    if let Some(pid) = pid {
        checks.extend(target::checks(pid, &machine));
    }
    checks
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_warning_and_failure_has_a_way_out() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let checks = checks(Pid::new(child.id().cast_signed()));
        child.kill().unwrap();
        child.wait().unwrap();
        for check in &checks {
            assert!(!check.detail.is_empty(), "{check:?}");
            let needed = matches!(check.status, CheckStatus::Warn | CheckStatus::Fail);
            assert_eq!(check.way_out.is_some(), needed, "{check:?}");
        }
        let mut names: Vec<_> = checks.iter().map(|check| check.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), checks.len(), "every check has a name of its own");
    }

    #[test]
    fn checks_are_written_as_objects() {
        let check = serde_json::to_value(Check::pass("BPF", "there")).unwrap();
        assert_eq!(check, serde_json::json!({"name": "BPF", "status": "pass", "detail": "there"}));
    }
}
