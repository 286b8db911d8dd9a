//! The descendants of a process.
//!
//! The result is a snapshot: it may miss processes that fork meanwhile. A caller that needs all descendants
//! must first follow forks, and then take snapshots until one has nothing new.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Process, ProcessError, RefusalKind, directory::ProcDirectory};
use crate::units::Pid;

/// The descendants of a process, parents before their children.
#[derive(Debug, Default)]
pub struct Descendants {
    /// The descendants to which we can attach.
    pub processes: Vec<Process>,
    /// The descendants that we cannot attach to, such as 32-bit programs, each with the reason. Processes
    /// that have ended are in neither list, nor are zombies.
    pub refused: Vec<(Pid, ProcessError)>,
}

/// Finds and opens the descendants of a process.
pub(super) fn find(root: &Process) -> Result<Descendants, ProcessError> {
    let mut found = Descendants::default();
    let mut source = ChildrenSource::new();
    let mut seen = HashSet::from([root.pid()]);
    // We also search the children of refused processes: a 32-bit shell may have started a 64-bit service.
    let mut parents = VecDeque::from([root.pid()]);
    while let Some(parent) = parents.pop_front() {
        for child in source.children(parent) {
            if !seen.insert(child) {
                continue;
            }
            match Process::open(child) {
                Ok(process) => {
                    // We check the parent again: another process may have got the PID after we read the list.
                    if process.status().is_ok_and(|status| status.parent == Some(parent)) {
                        found.processes.push(process);
                        parents.push_back(child);
                    }
                }
                Err(error) if error.kind() == RefusalKind::Gone => {}
                Err(error) => {
                    found.refused.push((child, error));
                    parents.push_back(child);
                }
            }
        }
    }
    if root.is_alive() { Ok(found) } else { Err(ProcessError::Gone { pid: root.pid() }) }
}

/// How we find the children of a process.
enum ChildrenSource {
    /// From /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN).
    Lists,
    /// From the parents in /proc/PID/status of every process. We read these files once.
    Scan(HashMap<Pid, Vec<Pid>>),
}

impl ChildrenSource {
    fn new() -> Self {
        if std::path::Path::new("/proc/thread-self/children").exists() {
            Self::Lists
        } else {
            Self::Scan(scan())
        }
    }

    fn children(&mut self, parent: Pid) -> Vec<Pid> {
        match self {
            Self::Lists => listed(parent),
            Self::Scan(children) => children.remove(&parent).unwrap_or_default(),
        }
    }
}

fn listed(parent: Pid) -> Vec<Pid> {
    let Ok(directory) = ProcDirectory::open(parent) else { return Vec::new() };
    let threads = directory.numbers("task").unwrap_or_default();
    let lists = threads.iter().filter_map(|thread| directory.read(&format!("task/{thread}/children")).ok());
    lists
        .flat_map(|list| {
            String::from_utf8_lossy(&list)
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<Pid>>()
        })
        .collect()
}

fn scan() -> HashMap<Pid, Vec<Pid>> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<Pid>().ok()) else {
            continue;
        };
        let status = std::fs::read(entry.path().join("status")).ok();
        let status = status.and_then(|text| super::Status::parse(&text).ok());
        if let Some(parent) = status.and_then(|status| status.parent) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Both sources find our own child.
    #[test]
    fn children_are_listed_by_either_source() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = Pid::new(std::process::id().cast_signed()).unwrap();
        let wanted = Pid::new(child.id().cast_signed()).unwrap();
        let scanned = ChildrenSource::Scan(scan()).children(own);
        let listed = matches!(ChildrenSource::new(), ChildrenSource::Lists).then(|| listed(own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(scanned.contains(&wanted));
        assert!(listed.is_none_or(|listed| listed.contains(&wanted)));
    }
}
