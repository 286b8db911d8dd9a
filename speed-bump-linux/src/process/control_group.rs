//! The control groups of a process, as folders that we can read.
//!
//! /proc/PID/cgroup gives a group as a path in a hierarchy. Our own mount table shows where this hierarchy is
//! mounted, and which of the hierarchy's groups is at the mount point.

use std::path::{Path, PathBuf};

use super::{Process, ProcessError, access::AccessMode, mountinfo};

/// A control group in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// The hierarchy: version 2, or one of version 1 with its controllers.
    pub hierarchy: Hierarchy,
    /// The folder where the hierarchy is mounted.
    mount: PathBuf,
    /// The path of the group below this folder.
    below: PathBuf,
}

/// The hierarchy of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// The hierarchy of version 2.
    Unified,
    /// A hierarchy of version 1, with these controllers.
    Legacy(Vec<String>),
}

/// A hierarchy that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    hierarchy: Hierarchy,
    /// The group that is visible at the mount point.
    root: PathBuf,
    point: PathBuf,
}

impl Process {
    /// The control groups of the process, as far as we can see them.
    ///
    /// # Errors
    /// The process has ended, or we may not inspect it.
    pub fn control_groups(&self) -> Result<Vec<ControlGroup>, ProcessError> {
        let text = self.read("cgroup", AccessMode::Read)?;
        Ok(groups(&String::from_utf8_lossy(&text), &hierarchies()))
    }
}

impl ControlGroup {
    /// The group's folder.
    pub fn folder(&self) -> PathBuf {
        self.mount.join(&self.below)
    }

    /// The folders of the group and of its parents, the innermost first.
    pub fn levels(&self) -> impl Iterator<Item = PathBuf> {
        // The last ancestor is the empty path, which gives the mount point.
        self.below.ancestors().map(|below| self.mount.join(below))
    }

    /// Whether the group's hierarchy has this controller of version 1.
    pub fn has_legacy(&self, controller: &str) -> bool {
        matches!(&self.hierarchy, Hierarchy::Legacy(all) if all.iter().any(|one| one == controller))
    }
}

/// The mounted hierarchies; empty if they cannot be read.
fn hierarchies() -> Vec<Mount> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let found = mountinfo::mounts(&table).filter_map(|mount| {
        let hierarchy = match mount.kind.as_slice() {
            b"cgroup2" => Hierarchy::Unified,
            // The controllers are among the mount options.
            b"cgroup" => Hierarchy::Legacy(
                String::from_utf8_lossy(&mount.options).split(',').map(str::to_owned).collect(),
            ),
            _ => return None,
        };
        Some(Mount { hierarchy, root: mount.root, point: mount.point })
    });
    found.collect()
}

/// Parses lines of the form `ID:CONTROLLERS:PATH` (cgroups(7)). Leaves out hierarchies that are not mounted
/// here.
fn groups(text: &str, mounts: &[Mount]) -> Vec<ControlGroup> {
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_of = |mount: &&Mount| match &mount.hierarchy {
            Hierarchy::Unified => controllers.is_empty(),
            Hierarchy::Legacy(all) => controllers.split(',').any(|one| all.iter().any(|other| other == one)),
        };
        let found = mounts.iter().filter(is_of).find_map(|mount| {
            let below = Path::new(path).strip_prefix(&mount.root).ok()?;
            // A path such as `/../x` leads outside of our own group namespace.
            let is_plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            is_plain.then(|| (mount, below.to_owned()))
        });
        let (mount, below) = found?;
        let hierarchy = match &mount.hierarchy {
            Hierarchy::Unified => Hierarchy::Unified,
            Hierarchy::Legacy(_) => Hierarchy::Legacy(controllers.split(',').map(str::to_owned).collect()),
        };
        Some(ControlGroup { hierarchy, mount: mount.point.clone(), below })
    };
    text.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn legacy(controllers: &[&str]) -> Hierarchy {
        Hierarchy::Legacy(controllers.iter().map(|one| (*one).to_owned()).collect())
    }

    fn mount(hierarchy: Hierarchy, root: &str, point: &str) -> Mount {
        Mount { hierarchy, root: root.into(), point: point.into() }
    }

    #[test]
    fn groups_are_found_where_their_hierarchies_are_mounted() {
        let mounts = [
            mount(legacy(&["rw", "memory"]), "/", "/cg/memory"),
            mount(legacy(&["rw", "cpu", "cpuacct"]), "/docker/abc", "/cg/cpu"),
            mount(Hierarchy::Unified, "/", "/cg/unified"),
        ];
        let text = "4:memory:/a/b\n3:cpu,cpuacct:/docker/abc/c\n2:cpu,cpuacct:/elsewhere\n\
                    1:name=systemd:/s\n0::/x:y\n";
        let found: Vec<_> = groups(text, &mounts)
            .into_iter()
            .map(|group| (group.hierarchy.clone(), group.folder()))
            .collect();
        assert_eq!(
            found,
            [
                (legacy(&["memory"]), PathBuf::from("/cg/memory/a/b")),
                (legacy(&["cpu", "cpuacct"]), PathBuf::from("/cg/cpu/c")),
                (Hierarchy::Unified, PathBuf::from("/cg/unified/x:y")),
            ]
        );
        assert!(groups("0::/../x\n0::no/slash\n0\n\n", &mounts).is_empty());
    }

    #[test]
    fn levels_end_at_the_mount_point() {
        let levels = |below: &str| -> Vec<_> {
            let group =
                ControlGroup { hierarchy: Hierarchy::Unified, mount: "/cg".into(), below: below.into() };
            group.levels().map(|folder| folder.display().to_string()).collect()
        };
        assert_eq!(levels("a/b"), ["/cg/a/b", "/cg/a", "/cg/"]);
        assert_eq!(levels(""), ["/cg/"]);
    }

    #[test]
    fn our_own_groups_are_folders() {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        for group in groups(&text, &hierarchies()) {
            assert!(group.folder().is_dir(), "{group:?}");
        }
    }
}
