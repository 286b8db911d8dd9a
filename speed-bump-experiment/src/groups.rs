//! Groups of functions by class, file, folder or thread.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::record::{Candidate, Group};

/// What the functions of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum GroupBy {
    /// The class, or the function in which they are nested. For functions without a class: the file.
    Class,
    /// The file.
    Module,
    /// The folder of the file.
    Package,
    /// The threads in which they were seen.
    Thread,
}

/// From the widest to the narrowest.
const LEVELS: [GroupBy; 4] = [GroupBy::Thread, GroupBy::Package, GroupBy::Module, GroupBy::Class];
/// The most groups of one level.
const MAX_PER_LEVEL: usize = 2;
/// The most groups of all levels.
const MAX_GROUPS: usize = 4;

/// Groups to test if all functions show alike, so that only their own times differ: the threads that take the
/// most time, within the first of them the folders, then files and classes. `own` is a function's own time.
pub(super) fn drill_down(candidates: &[(u32, &Candidate)], own: impl Fn(u32) -> f64) -> Vec<Group> {
    let taken = |group: &Group| group.members.iter().map(|of| own(*of)).sum::<f64>();
    let mut within = candidates.to_vec();
    let mut all: Vec<Group> = Vec::new();
    for by in LEVELS {
        let mut parts = groups(within.iter().copied(), by);
        if parts.len() < 2 {
            continue;
        }
        parts.sort_by(|a, b| taken(b).total_cmp(&taken(a)));
        let first = parts[0].members.clone();
        // A group of one function is tested as that function.
        parts.retain(|part| part.members.len() > 1);
        parts.truncate(MAX_PER_LEVEL);
        all.extend(parts.into_iter().map(|part| Group { beside_members: true, ..part }));
        within.retain(|(number, _)| first.contains(number));
    }
    all.truncate(MAX_GROUPS);
    all
}

/// Groups these numbered candidates. Each candidate is in one group.
pub fn groups<'a>(candidates: impl Iterator<Item = (u32, &'a Candidate)>, by: GroupBy) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (number, candidate) in candidates {
        groups.entry(name(candidate, by)).or_default().push(number);
    }
    let group = |(name, members)| Group { name, members, shares_slack: false, beside_members: false };
    groups.into_iter().map(group).collect()
}

fn name(candidate: &Candidate, by: GroupBy) -> String {
    let file = candidate.file.as_path();
    let folder = || file.parent().unwrap_or(Path::new("/")).display().to_string();
    match by {
        GroupBy::Package => folder(),
        GroupBy::Module => file.display().to_string(),
        GroupBy::Class => match class(&candidate.name) {
            Some(class) => format!("{class} ({})", file.display()),
            None => file.display().to_string(),
        },
        GroupBy::Thread => threads(candidate),
    }
}

/// `thread 12`, `threads 12, 14`.
fn threads(candidate: &Candidate) -> String {
    let threads = candidate.sharing.as_ref().map(|of| of.threads.as_slice()).unwrap_or_default();
    match threads {
        [] => "in no thread that was seen".to_owned(),
        [one] => format!("thread {one}"),
        several => {
            let numbers: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("threads {}", numbers.join(", "))
        }
    }
}

/// The part before the last dot or the last `::`: `Handler` of `Handler.reply`.
fn class(name: &str) -> Option<&str> {
    let python = name.rsplit_once('.').map(|(class, _)| class);
    let class = python.or_else(|| name.rsplit_once("::").map(|(class, _)| class))?;
    let class = class.strip_suffix(".<locals>").unwrap_or(class);
    (!class.is_empty()).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        TargetKind,
        record::Sharing,
        units::{Nanos, Pid},
    };

    fn candidate(file: &str, name: &str) -> Candidate {
        Candidate {
            name: name.to_owned(),
            file: file.into(),
            line: None,
            kind: TargetKind::Python,
            calls: 1,
            own_ns: None,
            floor_ns: Nanos(40),
            sampled: None,
            sharing: None,
        }
    }

    fn grouped(by: GroupBy) -> Vec<(String, Vec<u32>)> {
        let candidates = [
            candidate("/a/b/one.py", "Handler.reply"),
            candidate("/a/b/one.py", "main"),
            candidate("/a/b/two.py", "Handler.reply"),
            candidate("/a/b/one.py", "Handler.read"),
            candidate("/a/c/three.py", "outer.<locals>.inner"),
        ];
        let groups = groups((0..).zip(&candidates), by);
        groups.into_iter().map(|group| (group.name, group.members)).collect()
    }

    #[test]
    fn the_group_that_takes_the_most_is_divided_further() {
        let of = |file: &str, name: &str, thread: i32| {
            let threads = Pid::new(thread).into_iter().collect();
            let sharing = Some(Sharing { threads, with_units: None });
            Candidate { sharing, ..candidate(file, name) }
        };
        let candidates = [
            of("/a/b/one.py", "Handler.reply", 7),
            of("/a/b/one.py", "Handler.read", 7),
            of("/a/b/one.py", "main", 7),
            of("/a/b/two.py", "write", 7),
            of("/a/c/three.py", "log", 7),
            of("/a/c/three.py", "flush", 8),
        ];
        let own = [5.0, 4.0, 1.0, 2.0, 1.0, 1.0];
        let numbered: Vec<_> = (0..).zip(&candidates).collect();
        let found = drill_down(&numbered, |of| own[of as usize]);
        assert!(found.iter().all(|group| group.beside_members));
        let found: Vec<_> = found.iter().map(|of| (of.name.as_str(), of.members.clone())).collect();
        let expected = [
            ("thread 7", vec![0, 1, 2, 3, 4]),
            ("/a/b", vec![0, 1, 2, 3]),
            ("/a/b/one.py", vec![0, 1, 2]),
            ("Handler (/a/b/one.py)", vec![0, 1]),
        ];
        assert_eq!(found, expected);
        assert_eq!(drill_down(&numbered[..2], |_| 1.0), []);
    }

    #[test]
    fn functions_are_grouped_by_the_place_of_their_definition() {
        let expected = [("/a/b", vec![0, 1, 2, 3]), ("/a/c", vec![4])];
        assert_eq!(grouped(GroupBy::Package), expected.map(|(name, of)| (name.to_owned(), of)));
        let expected = [("/a/b/one.py", vec![0, 1, 3]), ("/a/b/two.py", vec![2]), ("/a/c/three.py", vec![4])];
        assert_eq!(grouped(GroupBy::Module), expected.map(|(name, of)| (name.to_owned(), of)));
        let expected = [
            ("/a/b/one.py", vec![1]),
            ("Handler (/a/b/one.py)", vec![0, 3]),
            ("Handler (/a/b/two.py)", vec![2]),
            ("outer (/a/c/three.py)", vec![4]),
        ];
        assert_eq!(grouped(GroupBy::Class), expected.map(|(name, of)| (name.to_owned(), of)));
    }
}
