//! The kernel module: whether it is there, and whose targets it has.

use super::Check;
use crate::engine::kmod::{Holder, KmodError, Module, Records};

const NAME: &str = "kernel module";

/// Looks at the module, and at what tools have noted of it. Changes nothing.
pub fn check(module: Result<Module, KmodError>, records: &Records) -> Check {
    let looked = module.and_then(|module| {
        module.check()?;
        Ok((module.is_enabled()?, module.listing()?))
    });
    let (is_enabled, listing) = match looked {
        Err(KmodError::Absent { .. }) => {
            return Check::skip(NAME, "speed_bump is not loaded; only --engine kmod needs it");
        }
        Err(error) => {
            return Check::warn(NAME, error.to_string(), "use --engine bpf, or load the module in kmod/");
        }
        Ok(looked) => looked,
    };
    let mut detail = format!("loaded, {}", if is_enabled { "enabled" } else { "disabled" });
    if listing.targets.is_empty() {
        detail.push_str(", no targets");
    } else {
        detail.push_str(&format!(", {} targets", listing.targets.len()));
    }
    let holders = records.holders(&listing);
    let mut parts: Vec<String> = holders.iter().map(whose).collect();
    let held: usize = holders.iter().map(|holder| holder.targets).sum();
    let others = listing.targets.len().saturating_sub(held);
    if others > 0 {
        parts.push(format!("{others} of others"));
    }
    if !parts.is_empty() {
        detail.push_str(": ");
        detail.push_str(&parts.join(", "));
    }
    if holders.iter().any(|holder| holder.was_killed) {
        let way_out =
            "the next run with --engine kmod, which may be `list`, removes what a killed one has left";
        return Check::warn(NAME, detail, way_out);
    }
    Check::pass(NAME, detail)
}

fn whose(holder: &Holder) -> String {
    let Holder { tool, targets, was_killed } = holder;
    let killed = if *was_killed { ", which was killed" } else { "" };
    format!("{targets} of process {tool} of this tool{killed}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

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
        fs::write(module.join("stats"), "").unwrap();
        let other = look();
        assert!(
            other.status == CheckStatus::Warn && other.detail.contains("not this project's"),
            "{other:?}"
        );
        fs::write(module.join("stats"), "total_interrupted: 0\n").unwrap();
        fs::write(module.join("targets_list"), "/a:f delay_ns=1 hits=0\n/a:g delay_ns=1 hits=0\n").unwrap();
        let found = look();
        assert_eq!(
            (found.status, found.detail.as_str()),
            (CheckStatus::Pass, "loaded, enabled, 2 targets: 2 of others")
        );
        fs::write(module.join("targets_list"), "").unwrap();
        fs::write(module.join("enabled"), "0\n").unwrap();
        assert_eq!(look().detail, "loaded, disabled, no targets");
        fs::write(module.join("enabled"), "what\n").unwrap();
        assert_eq!(look().status, CheckStatus::Warn);
    }
}
