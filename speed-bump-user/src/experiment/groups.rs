//! Functions that are looked at together: by where they are defined.

use std::{collections::BTreeMap, path::Path};

use super::record::{Candidate, Group};

/// What functions of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum GroupBy {
    /// The class, or the function that they are nested in. Functions of no class: the file.
    Class,
    /// The file.
    Module,
    /// The folder of the file.
    Package,
}

/// Groups of these candidates, which come by number. Each candidate is in one.
pub fn groups<'a>(candidates: impl Iterator<Item = (u32, &'a Candidate)>, by: GroupBy) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (number, candidate) in candidates {
        groups.entry(name(candidate, by)).or_default().push(number);
    }
    let group = |(name, members)| Group { name, members, shares_slack: false };
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
    }
}

/// What is before the last dot, or the last `::`: `Handler` of `Handler.reply`.
fn class(name: &str) -> Option<&str> {
    let python = name.rsplit_once('.').map(|(class, _)| class);
    let class = python.or_else(|| name.rsplit_once("::").map(|(class, _)| class))?;
    let class = class.strip_suffix(".<locals>").unwrap_or(class);
    (!class.is_empty()).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{targets::TargetKind, units::Nanos};

    fn grouped(by: GroupBy) -> Vec<(String, Vec<u32>)> {
        let of = |file: &str, name: &str| Candidate {
            name: name.to_owned(),
            file: file.into(),
            line: None,
            kind: TargetKind::Python,
            calls: 1,
            own_ns: None,
            floor_ns: Nanos(40),
            sampled: None,
        };
        let candidates = [
            of("/a/b/one.py", "Handler.reply"),
            of("/a/b/one.py", "main"),
            of("/a/b/two.py", "Handler.reply"),
            of("/a/b/one.py", "Handler.read"),
            of("/a/c/three.py", "outer.<locals>.inner"),
        ];
        let groups = groups((0..).zip(&candidates), by);
        groups.into_iter().map(|group| (group.name, group.members)).collect()
    }

    #[test]
    fn functions_come_together_by_where_they_are_defined() {
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
