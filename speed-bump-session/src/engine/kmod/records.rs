//! Records of the targets that each running tool has in the module. A later tool can then remove the targets
//! of a killed tool.
//!
//! Each tool has a file, which the tool writes before it changes the module. So every target of the tool in
//! the module is in the record, but not every target in the record is in the module. A tool holds the lock
//! while it makes a change.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{KmodError, Listed, Listing, TargetName};
use crate::{process::stat::Stat, units::Pid, whole_file};

/// The folder of the records. After a reboot the folder is empty, like the module.
pub const RECORDS: &str = "/run/speed-bump-ebpf";
/// The prefix and suffix of a file's name. The tool's PID is in between.
const PREFIX: &str = "kmod-";
const SUFFIX: &str = ".json";
/// How long we wait for another tool that adds or removes its targets: on old kernels each target takes long.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A tool's targets in the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The tool's PID.
    pub tool: i32,
    /// The time when the tool started, in clock ticks since boot.
    pub started: u64,
    /// Identifies the boot of the machine.
    pub boot_id: String,
    /// The PID namespace of these PIDs: the inode of its file in /proc.
    pub pid_namespace: u64,
    /// The process that the targets apply to.
    pub process: i32,
    /// The tool's targets.
    pub targets: Vec<TargetName>,
    /// Whether the module was enabled before the tool enabled it.
    pub enabled_before: bool,
}

/// The state of a record's owner, a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// The tool runs.
    Lives,
    /// The tool ended without removing its targets.
    Died,
    /// The machine has rebooted since, so the module is empty.
    Before,
    /// The tool's PID is from another namespace, so we cannot know.
    Elsewhere,
}

/// The records of all tools.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
}

/// A tool that has recorded targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The tool's PID.
    pub tool: i32,
    /// How many of the tool's targets are in the module.
    pub targets: usize,
    /// Whether the tool ended without removing its targets.
    pub was_killed: bool,
}

/// The right to change the records and the module. Only one tool has it at a time.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "closing it ends the lock")] File);

impl Record {
    /// A record for this tool, without targets.
    pub(super) fn own(process: Pid, enabled_before: bool) -> io::Result<Self> {
        let tool = Pid::own().get();
        Ok(Self {
            tool,
            started: started(tool)?,
            boot_id: boot_id()?,
            pid_namespace: pid_namespace()?,
            process: process.get(),
            targets: Vec::new(),
            enabled_before,
        })
    }

    /// Whether a target in the module belongs to the tool. If another user has replaced the target, the new
    /// one has another process, or none.
    pub(super) fn has(&self, listed: &Listed) -> bool {
        listed.process == Some(self.process) && self.targets.iter().any(|name| name.as_str() == listed.name)
    }

    /// The state of the tool.
    pub(super) fn life(&self) -> io::Result<Life> {
        if self.boot_id != boot_id()? {
            return Ok(Life::Before);
        }
        if self.pid_namespace != pid_namespace()? {
            return Ok(Life::Elsewhere);
        }
        // If another process has the same PID now, it started later.
        let lives = started(self.tool).is_ok_and(|started| started == self.started);
        Ok(if lives { Life::Lives } else { Life::Died })
    }
}

impl Records {
    /// Opens the folder ([`RECORDS`], except in tests), or creates it.
    ///
    /// # Errors
    /// We cannot open or create the folder.
    pub fn open(folder: &Path) -> Result<Self, KmodError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| KmodError::Record { file: folder.to_owned(), error })?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Like [`open`](Self::open), but for reading only. The folder need not exist.
    pub fn look(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Waits until no other tool makes changes, and takes the lock.
    pub(super) fn lock(&self) -> Result<Lock, KmodError> {
        let path = self.folder.join("kmod.lock");
        let failed = |error| KmodError::Record { file: path.clone(), error };
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        // Waits only for a limited time: the tool that holds the lock may have been stopped.
        while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::WOULDBLOCK || Instant::now() >= deadline {
                return Err(failed(errno.into()));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(Lock(file))
    }

    /// All readable records, including our own. Warns about the others.
    pub(super) fn all(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let is_record = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(is_record);
        let read = |path: PathBuf| match read(&path) {
            Ok(record) => Some(record),
            Err(error) => {
                tracing::warn!("{} is no note of ours and is left out: {error}", path.display());
                None
            }
        };
        paths.filter_map(read).collect()
    }

    /// The tools with targets in the module, according to the records.
    pub fn holders(&self, listing: &Listing) -> Vec<Holder> {
        let of_this_boot = |record: &Record| !matches!(record.life(), Ok(Life::Before));
        let holder = |record: Record| Holder {
            tool: record.tool,
            targets: listing.targets.iter().filter(|listed| record.has(listed)).count(),
            was_killed: matches!(record.life(), Ok(Life::Died)),
        };
        self.all().into_iter().filter(of_this_boot).map(holder).collect()
    }

    /// The present record of a tool. Another tool may have changed it.
    pub(super) fn for_tool(&self, tool: i32) -> Option<Record> {
        read(&self.path(tool)).ok()
    }

    /// Replaces a record as a whole, or not at all.
    pub(super) fn write(&self, record: &Record) -> Result<(), KmodError> {
        let path = self.path(record.tool);
        let failed = |error| KmodError::Record { file: path.clone(), error };
        let text = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
        whole_file::write(&path, 0o600, &text, |_| Ok(())).map_err(failed)
    }

    /// Removes the record of a tool.
    pub(super) fn remove(&self, tool: i32) -> Result<(), KmodError> {
        let path = self.path(tool);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(KmodError::Record { file: path, error })
            }
            _ => Ok(()),
        }
    }

    fn path(&self, tool: i32) -> PathBuf {
        self.folder.join(format!("{PREFIX}{tool}{SUFFIX}"))
    }
}

fn read(path: &Path) -> io::Result<Record> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// The time when a process started. Fails if it has ended.
fn started(pid: i32) -> io::Result<u64> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    let stat = Stat::parse(&text).ok_or(io::ErrorKind::InvalidData)?;
    // A zombie counts as ended.
    if matches!(stat.state, 'Z' | 'X' | 'x') {
        Err(io::ErrorKind::NotFound.into())
    } else {
        Ok(stat.starttime)
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record() -> Record {
        let mut record = Record::own(Pid::own(), false).unwrap();
        record.targets.push(TargetName::new(Path::new("/usr/lib/a.so"), "f").unwrap());
        record
    }

    #[test]
    fn records_come_back_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(&folder.path().join("made")).unwrap();
        assert!(records.all().is_empty());
        let mut record = record();
        records.write(&record).unwrap();
        record.enabled_before = true;
        records.write(&record).unwrap();
        fs::write(folder.path().join("made/kmod-1.json"), "rubbish").unwrap();
        fs::write(folder.path().join("made/other"), "").unwrap();
        assert_eq!(records.all(), [record.clone()]);
        assert_eq!(records.for_tool(record.tool), Some(record.clone()));
        records.remove(record.tool).unwrap();
        records.remove(record.tool).unwrap();
        assert!(records.all().is_empty());
    }

    #[test]
    fn a_tool_is_told_from_others_of_its_number() {
        let own = record();
        assert_eq!(own.life().unwrap(), Life::Lives);
        assert_eq!(Record { started: own.started + 1, ..own.clone() }.life().unwrap(), Life::Died);
        assert_eq!(Record { tool: i32::MAX, ..own.clone() }.life().unwrap(), Life::Died);
        assert_eq!(Record { boot_id: "another".into(), ..own.clone() }.life().unwrap(), Life::Before);
        assert_eq!(Record { pid_namespace: 1, ..own }.life().unwrap(), Life::Elsewhere);
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path()).unwrap();
        let lock = records.lock().unwrap();
        let other = File::open(folder.path().join("kmod.lock")).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(lock);
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}
