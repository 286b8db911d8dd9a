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

/// Groups these numbered candidates. Each candidate is in one group.
pub fn groups<'a>(candidates: impl Iterator<Item = (u32, &'a Candidate)>, by: GroupBy) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (number, candidate) in candidates {
        groups.entry(name(candidate, by)).or_default().push(number);
    }
    let group = |(name, members)| Group { name, members };
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
    use crate::{TargetKind, record::Origin, units::Nanos};

    fn candidate(file: &str, name: &str) -> Candidate {
        Candidate {
            name: name.to_owned(),
            file: file.into(),
            line: None,
            caller: None,
            kind: TargetKind::Python,
            origin: Origin::Service,
            calls: 1,
            own_ns: None,
            waited_ns: None,
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
