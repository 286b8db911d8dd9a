//! tests/alone.toml: tests that measure what other programs on the machine can change. One that failed beside
//! other tests runs once more, with none beside it, and the summary tells of both.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use speed_bump_testing::places;

use super::skip_list::matches;

/// The most tests that may fail beside others. If more fail, something else is wrong.
const MAX: usize = 3;

/// Tests of one area.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The test program: `experiments`.
    area: String,
    /// The tests, as libtest names them: `planted::*`. `*` stands for anything.
    test: String,
    /// What they measure.
    #[allow(dead_code, reason = "readers of the list need it")]
    measures: String,
}

/// The list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AloneList {
    entry: Vec<Entry>,
}

/// A test that runs once more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Again<'a> {
    /// As libtest names it.
    pub(super) test: &'a str,
    area: &'a str,
}

impl AloneList {
    const FILE: &str = "tests/alone.toml";

    pub(super) fn read() -> Result<Self> {
        let path = places::root().join(Self::FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no list of tests", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// Which of these failed tests run once more: all of them, if each is in the list and they are few.
    /// Otherwise none, as the run has failed already.
    pub(super) fn again<'a>(&'a self, failures: &'a BTreeSet<String>) -> Vec<Again<'a>> {
        let again = |failure: &'a String| {
            let entry = self.entry.iter().find(|entry| matches(&entry.test, failure))?;
            Some(Again { test: failure, area: &entry.area })
        };
        let all: Option<Vec<_>> = failures.iter().map(again).collect();
        all.filter(|all| all.len() <= MAX).unwrap_or_default()
    }
}

impl Again<'_> {
    /// What `cargo test` is run with for this test alone.
    pub(super) fn arguments(&self) -> Vec<String> {
        let words = ["-p", "speed-bump-tests", "--test", self.area, "--", "--exact", self.test];
        words.map(str::to_owned).to_vec()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIST: &str = "
        [[entry]]
        area = 'experiments'
        test = 'planted::*'
        measures = 'the pace of a service'
    ";

    fn again(failures: &[&str]) -> Vec<String> {
        let failures: BTreeSet<String> = failures.iter().map(|&name| name.to_owned()).collect();
        let list = AloneList::parse(LIST).unwrap();
        list.again(&failures).iter().map(|again| again.test.to_owned()).collect()
    }

    #[test]
    fn few_tests_of_the_list_run_once_more_and_no_others() {
        assert_eq!(again(&["planted::one"]), ["planted::one"]);
        assert_eq!(again(&["planted::one", "planted::two"]).len(), 2);
        // Something that load does not explain has failed as well.
        assert!(again(&["planted::one", "other::planted"]).is_empty());
        assert!(again(&["planted::1", "planted::2", "planted::3", "planted::4"]).is_empty());
        assert!(again(&[]).is_empty());
    }

    #[test]
    fn the_list_of_the_tests_is_one() {
        let list = AloneList::read().unwrap();
        assert!(!list.entry.is_empty());
        for entry in &list.entry {
            let file = entry.test.split("::").next().unwrap();
            let folder = places::root().join("tests").join(&entry.area);
            assert!(folder.join(file).is_dir() || folder.join(format!("{file}.rs")).is_file(), "{entry:?}");
        }
    }
}
