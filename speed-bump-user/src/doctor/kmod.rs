//! The kernel module: whether it is loaded, and whose targets it has.

use super::Check;
use crate::engine::kmod::{Holder, KmodError, Listing, Module, Records};

const NAME: &str = "kernel module";

/// Checks the module and the tools' notes about it. Changes nothing.
pub(crate) fn check(module: Result<Module, KmodError>, records: &Records) -> Check {
    let read = module.and_then(|module| {
        // A run may have accepted upstream's module and left targets in it.
        let upstream = match module.check() {
            Err(error @ KmodError::Other { .. }) => Some(error),
            checked => checked.map(|()| None)?,
        };
        Ok((upstream, module.is_enabled()?, module.listing()?))
    });
    const ELSE: &str = "use --engine bpf, or load the module in kmod/";
    let (upstream, is_enabled, listing) = match read {
        Err(KmodError::Absent { .. }) => {
            return Check::skip(NAME, "speed_bump is not loaded; only --engine kmod needs it");
        }
        Err(error) => return Check::warn(NAME, error.to_string(), ELSE),
        Ok(read) => read,
    };
    let holders = records.holders(&listing);
    let detail = state(is_enabled, &listing, &holders);
    let was_killed = holders.iter().any(|holder| holder.was_killed);
    let next = |flags| {
        format!("the next run with {flags}, which may be `list`, removes what the killed tool has left")
    };
    match upstream {
        Some(error) => {
            let accepted = was_killed.then(|| next("--engine kmod --accept-upstream-module"));
            Check::warn(NAME, format!("{detail}; {error}"), accepted.unwrap_or_else(|| ELSE.to_owned()))
        }
        None if was_killed => Check::warn(NAME, detail, next("--engine kmod")),
        None => Check::pass(NAME, detail),
    }
}

/// Whether the module is enabled, and whose targets it has.
fn state(is_enabled: bool, listing: &Listing, holders: &[Holder]) -> String {
    let mut text = format!("loaded, {}", if is_enabled { "enabled" } else { "disabled" });
    match listing.targets.len() {
        0 => text.push_str(", no targets"),
        1 => text.push_str(", 1 target"),
        count => text.push_str(&format!(", {count} targets")),
    }
    let mut parts: Vec<String> = holders.iter().map(whose).collect();
    let held: usize = holders.iter().map(|holder| holder.targets).sum();
    let others = listing.targets.len().saturating_sub(held);
    if others > 0 {
        parts.push(format!("{others} of other programs"));
    }
    if !parts.is_empty() {
        text.push_str(": ");
        text.push_str(&parts.join(", "));
    }
    text
}

fn whose(holder: &Holder) -> String {
    let Holder { tool, targets, was_killed } = holder;
    let killed = if *was_killed { ", which was killed" } else { "" };
    format!("{targets} of process {tool} of this tool{killed}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;
    use crate::doctor::CheckStatus;

    #[test]
    fn the_module_is_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let look = || {
            let records = Records::look(&folder.path().join("records"));
            check(Module::look(&folder.path().join("speed_bump")), &records)
        };
        assert_eq!(look().status, CheckStatus::Skip);
        let module = folder.path().join("speed_bump");
        fs::create_dir(&module).unwrap();
        fs::write(module.join("enabled"), "1\n").unwrap();
        fs::write(module.join("stats"), "total_interrupted: 0\n").unwrap();
        fs::write(module.join("targets_list"), "/a:f delay_ns=1 hits=0\n/a:g delay_ns=1 hits=0\n").unwrap();
        let found = look();
        assert_eq!(
            (found.status, found.detail.as_str()),
            (CheckStatus::Pass, "loaded, enabled, 2 targets: 2 of other programs")
        );
        fs::write(module.join("targets_list"), "").unwrap();
        fs::write(module.join("enabled"), "0\n").unwrap();
        assert_eq!(look().detail, "loaded, disabled, no targets");
        fs::write(module.join("enabled"), "what\n").unwrap();
        assert_eq!(look().status, CheckStatus::Warn);
    }

    #[test]
    fn targets_in_upstreams_module_are_told_of_too() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("enabled", "1\n"),
            ("stats", "enabled: 1\ntargets: 1\ntotal_hits: 7\ntotal_delay_ns: 7\n"),
            ("targets_list", "/proc/5/fd/9:f delay_ns=1 hits=7 pid=77\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let look = || check(Module::look(folder.path()), &Records::look(folder.path()));
        let found = look();
        assert_eq!(found.status, CheckStatus::Warn);
        let said = "loaded, enabled, 1 target: 1 of other programs; the loaded module speed_bump is not this \
             project's";
        assert!(found.detail.starts_with(said), "{found:?}");
        assert!(found.way_out.unwrap().contains("load the module in kmod/"));

        let record = serde_json::json!({
            "tool": i32::MAX, "started": 1, "process": 77, "enabled_before": false,
            "boot_id": fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim(),
            "pid_namespace": fs::metadata("/proc/self/ns/pid").unwrap().ino(),
            "targets": ["/proc/5/fd/9:f"],
        });
        fs::write(folder.path().join("kmod-2147483647.json"), record.to_string()).unwrap();
        let found = look();
        assert!(
            found.detail.contains("1 of process 2147483647 of this tool, which was killed; "),
            "{found:?}"
        );
        assert!(
            found.way_out.unwrap().contains("--engine kmod --accept-upstream-module, which may be `list`")
        );
    }
}
