//! Removes a tool's targets from the module: our own targets at the end, and the targets of a killed tool.

use std::{thread, time::Duration};

use super::{
    KmodError, Listing, Module, Record, Records, Refusal, TARGETS,
    records::{Life, Lock},
};

/// How often we check at most whether the counts are final, and the time between two checks.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// How long we wait for delays in progress in upstream's module. That module does not end delays early, and
/// counts each delay at its end.
const SPINS: Duration = Duration::from_secs(1);

/// The result of removing a tool's targets.
#[derive(Debug)]
pub(super) struct Released {
    /// The module's targets before the removal.
    pub(super) last: Listing,
    /// How many targets this has removed.
    pub(super) removed: usize,
    /// Whether the module is disabled again.
    pub(super) disabled: bool,
    /// Warnings.
    pub(super) warnings: Vec<String>,
}

/// Removes targets that killed tools have left. Returns a line for each tool.
///
/// # Errors
/// The module does not execute a command.
pub fn recover(module: &Module, records: &Records) -> Result<Vec<String>, KmodError> {
    let lock = records.lock()?;
    recover_locked(module, records, &lock)
}

pub(super) fn recover_locked(
    module: &Module,
    records: &Records,
    lock: &Lock,
) -> Result<Vec<String>, KmodError> {
    let mut told = Vec::new();
    for record in records.all() {
        let tool = record.tool;
        match record.life() {
            Ok(Life::Before) => records.remove(tool)?,
            Ok(Life::Died) => {
                let released = release(module, records, &record, lock)?;
                let back = if released.disabled { ", and disabled it again" } else { "" };
                told.push(format!(
                    "process {tool} of this tool was killed; removed {} targets that it left in the kernel \
                     module{back}",
                    released.removed
                ));
                told.extend(released.warnings);
            }
            Ok(Life::Elsewhere) => told.push(format!(
                "speed-bump-ebpf in another PID namespace (process {tool} there) has targets in the kernel \
                 module; they are not touched"
            )),
            // The tool runs, or we cannot know.
            Ok(Life::Lives) | Err(_) => {}
        }
    }
    Ok(told)
}

/// The module's counts, including counts of delays that have just ended. The module does not report when its
/// counts are complete: a thread that is not running at the moment adds its counts later.
fn settled(module: &Module) -> Result<Listing, KmodError> {
    let mut last = module.listing()?;
    for _ in 0..LOOKS {
        thread::sleep(BETWEEN_LOOKS);
        let now = module.listing()?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

/// Removes the targets in a record, and then the record.
pub(super) fn release(
    module: &Module,
    records: &Records,
    record: &Record,
    _lock: &Lock,
) -> Result<Released, KmodError> {
    let before = match module.listing() {
        // Someone unloaded the module. The targets are gone with it.
        Err(error @ KmodError::Absent { .. }) => {
            records.remove(record.tool)?;
            return Err(error);
        }
        listing => listing?,
    };
    let others = before.targets.iter().filter(|listed| !record.has(listed)).count();
    let heir = records
        .all()
        .into_iter()
        .find(|other| other.tool != record.tool && matches!(other.life(), Ok(Life::Lives | Life::Elsewhere)));
    let mut released =
        Released { last: Listing::default(), removed: 0, disabled: false, warnings: Vec::new() };
    if !record.enabled_before && module.is_enabled()? {
        match heir {
            // This tool needs the module enabled. It will disable the module when it ends.
            Some(mut heir) => {
                heir.enabled_before = false;
                records.write(&heir)?;
            }
            None if others == 0 => {
                // Disables the module first: this ends delays, so the counts become final.
                module.enable(false)?;
                released.disabled = true;
            }
            None => released.warnings.push(format!(
                "the kernel module was disabled before, and stays enabled: it has targets that somebody else \
                 has added since ({others} of {TARGETS})"
            )),
        }
    }
    if module.is_upstream() {
        let own = before.targets.iter().filter(|listed| record.has(listed));
        let longest = own.map(|listed| listed.delay.0).max().unwrap_or(0);
        thread::sleep(Duration::from_nanos(longest).min(SPINS));
    }
    released.last = settled(module)?;
    let mut failed = None;
    for listed in released.last.targets.iter().filter(|listed| record.has(listed)) {
        let Some(name) = record.targets.iter().find(|name| name.as_str() == listed.name) else { continue };
        match module.remove(name) {
            Ok(()) => released.removed += 1,
            // Another tool has removed the target already.
            Err(KmodError::Refused { why: Refusal::NotThere, .. }) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        // The record still has the targets, and the next run tries again.
        return Err(error);
    }
    records.remove(record.tool)?;
    Ok(released)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{fs, path::Path};

    use tempfile::TempDir;

    use super::*;
    use crate::{engine::kmod::TargetName, units::Pid};

    const LISTED: &str = "/lib/a.so:f delay_ns=5 hits=1 pid=77\n\
                          /lib/a.so:g delay_ns=5 hits=1 pid=78\n\
                          /lib/a.so:h delay_ns=5 hits=1\n";

    /// A folder with files like the module's, and another one with records.
    fn set_up(enabled: &str, listed: &str) -> (TempDir, Module, Records) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("enabled", enabled),
            ("targets", ""),
            ("targets_list", listed),
            ("stats", "total_interrupted: 0\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let module = Module::open(folder.path()).unwrap();
        let records = Records::open(&folder.path().join("records")).unwrap();
        (folder, module, records)
    }

    fn dead(names: &[&str], enabled_before: bool) -> Record {
        let mut record = Record::own(Pid::new(77).unwrap(), enabled_before).unwrap();
        record.targets =
            names.iter().map(|name| TargetName::new(Path::new("/lib/a.so"), name).unwrap()).collect();
        Record { tool: i32::MAX, ..record }
    }

    fn written(folder: &TempDir) -> String {
        fs::read_to_string(folder.path().join("targets")).unwrap()
    }

    #[test]
    fn what_the_dead_have_left_goes_and_nothing_else() {
        let (folder, module, records) = set_up("1\n", LISTED);
        // The second and third target now belong to another user, and the fourth is gone.
        records.write(&dead(&["f", "g", "h", "i"], true)).unwrap();
        let told = recover(&module, &records).unwrap();
        assert!(told.len() == 1 && told[0].contains("removed 1 targets"), "{told:?}");
        assert_eq!(written(&folder), "-/lib/a.so:f");
        assert!(module.is_enabled().unwrap() && records.all().is_empty());
        assert!(recover(&module, &records).unwrap().is_empty());
    }

    #[test]
    fn the_module_is_disabled_again_if_no_other_user_has_targets() {
        let (_folder, module, records) = set_up("1\n", "/lib/a.so:f delay_ns=5 pid=77\n");
        records.write(&dead(&["f"], false)).unwrap();
        let told = recover(&module, &records).unwrap();
        assert!(told[0].ends_with("and disabled it again"), "{told:?}");
        assert!(!module.is_enabled().unwrap());

        let (_folder, module, records) = set_up("1\n", LISTED);
        records.write(&dead(&["f"], false)).unwrap();
        let told = recover(&module, &records).unwrap();
        assert!(told[1].contains("stays enabled"), "{told:?}");
        assert!(module.is_enabled().unwrap());
    }

    #[test]
    fn the_living_are_left_alone_and_inherit() {
        let (folder, module, records) = set_up("1\n", LISTED);
        let living = Record { tool: Pid::own().get(), ..dead(&["f"], true) };
        records.write(&living).unwrap();
        assert!(recover(&module, &records).unwrap().is_empty());
        assert_eq!((written(&folder).as_str(), records.all().len()), ("", 1));

        records.write(&dead(&["i"], false)).unwrap();
        recover(&module, &records).unwrap();
        assert!(module.is_enabled().unwrap());
        assert_eq!(records.for_tool(living.tool), Some(Record { enabled_before: false, ..living }));
    }

    #[test]
    fn what_was_before_a_reboot_is_forgotten() {
        let (folder, module, records) = set_up("1\n", LISTED);
        records.write(&Record { boot_id: "another".into(), ..dead(&["f"], false) }).unwrap();
        assert!(recover(&module, &records).unwrap().is_empty());
        assert!(records.all().is_empty() && module.is_enabled().unwrap());
        assert_eq!(written(&folder), "");
    }

    #[test]
    fn spins_that_upstreams_module_lets_go_on_are_counted() {
        let listed = |hits: u32| format!("/lib/a.so:f delay_ns=1000000000 hits={hits} pid=77\n");
        let (folder, _, records) = set_up("1\n", &listed(1));
        fs::write(folder.path().join("stats"), "enabled: 1\ntargets: 1\n").unwrap();
        let module = Module::open_any(folder.path()).unwrap();
        let last = thread::scope(|scope| {
            scope.spawn(|| {
                while module.is_enabled().unwrap_or(true) {
                    thread::sleep(BETWEEN_LOOKS);
                }
                // Waits longer than the code waits for final counts.
                thread::sleep(10 * BETWEEN_LOOKS);
                fs::write(folder.path().join("new"), listed(2)).unwrap();
                fs::rename(folder.path().join("new"), folder.path().join("targets_list")).unwrap();
            });
            let lock = records.lock().unwrap();
            release(&module, &records, &dead(&["f"], false), &lock).unwrap().last
        });
        assert_eq!(last.targets[0].hits, 2);
    }
}
