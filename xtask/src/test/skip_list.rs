//! tests/skips.toml: which tests may be skipped, where, and why. A skip that is not listed fails the run.

use std::{fmt, fs};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use speed_bump_testing::{places, skip::Skip};

/// Where tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A developer's machine.
    Host,
    /// A developer's machine with `--offline`: things that were never fetched are missing.
    Offline,
    /// The machine of continuous integration, which sets `CI`.
    Ci,
    /// A guest with a kernel of this series: `6.12`.
    Guest(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Offline => "offline",
            Self::Ci => "ci",
            Self::Guest(series) => series,
        })
    }
}

/// A skip that is allowed. In all texts `*` matches anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    /// The test: `program::path::of::the_test`.
    test: String,
    /// Its case; without one, the whole test.
    case: Option<String>,
    /// The reason that the test gives.
    because: String,
    /// Where, in [`Place`]'s notation.
    places: Vec<String>,
    /// Why the skip is right.
    why: String,
    /// Whether it depends on the machine, so that an unused entry is not reported.
    #[serde(default)]
    sometimes: bool,
}

impl Entry {
    fn covers(&self, place: Place, skip: &Skip) -> bool {
        let is_case = match (&self.case, &skip.case) {
            (None, None) => true,
            (Some(pattern), Some(case)) => matches(pattern, case),
            _ => false,
        };
        is_case
            && self.is_about(place)
            && matches(&self.test, &skip.test)
            && matches(&self.because, &skip.reason)
    }

    fn is_about(&self, place: Place) -> bool {
        self.places.iter().any(|name| *name == place.to_string())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, case, because, why, .. } = self;
        let case = case.as_ref().map(|case| format!(" [{case}]")).unwrap_or_default();
        write!(f, "{test}{case}: because {because} ({why})")
    }
}

/// The list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkipList {
    skip: Vec<Entry>,
}

impl SkipList {
    /// Its path, from the root of the working tree.
    pub(crate) const FILE: &str = "tests/skips.toml";

    /// Reads it.
    pub(crate) fn read() -> Result<Self> {
        let path = places::root().join(Self::FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no list of skips", path.display()))
    }

    /// Reads its text.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// Whether this may be skipped here.
    pub(super) fn allows(&self, place: Place, skip: &Skip) -> bool {
        self.skip.iter().any(|entry| entry.covers(place, skip))
    }

    /// The entries for this place that match none of these skips.
    pub(super) fn unused<'a>(&'a self, place: Place, skips: &[&Skip]) -> Vec<&'a Entry> {
        let is_used = |entry: &Entry| skips.iter().any(|skip| entry.covers(place, skip));
        let of_here = self.skip.iter().filter(|entry| entry.is_about(place) && !entry.sometimes);
        of_here.filter(|entry| !is_used(entry)).collect()
    }
}

/// Whether a pattern matches a text; `*` matches anything.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let mut tails = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    tails.any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;
    use crate::{test::tally, vm};

    fn skip(test: &str, case: Option<&str>, reason: &str) -> Skip {
        Skip { test: test.into(), case: case.map(str::to_owned), reason: reason.into() }
    }

    const LIST: &str = "
        [[skip]]
        test = 'a::*'
        because = 'no module*'
        places = ['host', '6.1']
        why = 'it crashes'

        [[skip]]
        test = 'b::c'
        case = 'Python 3.*'
        because = '*'
        places = ['host']
        why = 'not there'
        sometimes = true
    ";

    #[test]
    fn an_entry_is_about_tests_or_cases_for_a_reason_somewhere() {
        let list = SkipList::parse(LIST).unwrap();
        for (place, skip, expected) in [
            (Place::Host, skip("a::x", None, "no module here"), true),
            (Place::Guest("6.1"), skip("a::y::z", None, "no module"), true),
            (Place::Guest("6.12"), skip("a::x", None, "no module"), false),
            (Place::Ci, skip("a::x", None, "no module"), false),
            (Place::Offline, skip("a::x", None, "no module"), false),
            (Place::Host, skip("a::x", None, "attaching needs root"), false),
            (Place::Host, skip("a::x", Some("one"), "no module"), false),
            (Place::Host, skip("aa::x", None, "no module"), false),
            (Place::Host, skip("b::c", Some("Python 3.8"), ""), true),
            (Place::Host, skip("b::c", Some("PyPy"), ""), false),
            (Place::Host, skip("b::c", None, ""), false),
        ] {
            assert_eq!(list.allows(place, &skip), expected, "{place}: {skip}");
        }
    }

    #[test]
    fn what_is_listed_and_never_skipped_is_told() {
        let list = SkipList::parse(LIST).unwrap();
        let unused = |place, skips: &[&Skip]| -> Vec<String> {
            list.unused(place, skips).iter().map(ToString::to_string).collect()
        };
        assert_eq!(unused(Place::Host, &[]), ["a::*: because no module* (it crashes)"]);
        assert!(unused(Place::Host, &[&skip("a::x", None, "no module")]).is_empty());
        assert!(unused(Place::Ci, &[]).is_empty());
    }

    #[test]
    fn a_list_with_a_slip_of_the_pen_is_refused() {
        for slip in ["places", "because", "why", "test"] {
            assert!(SkipList::parse(&LIST.replace(slip, "wy")).is_err(), "{slip}");
        }
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "ac", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*é*", "aéb", true),
            ("a*b*c", "a c b c", true),
            ("a*b*c", "a c c", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// The text of all Rust files below a folder.
    fn sources(folder: &Path) -> String {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let text_of = |path: std::path::PathBuf| match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(extension) if extension == "rs" => fs::read_to_string(&path).unwrap(),
            _ => String::new(),
        };
        entries.map(text_of).collect()
    }

    #[test]
    fn without_root_no_run_succeeds() {
        let list = SkipList::read().unwrap();
        for place in [Place::Host, Place::Offline, Place::Ci, Place::Guest("6.12")] {
            for reason in ["attaching needs root", "needs root, to become another user"] {
                for case in [None, Some("a file of a foreign owner")] {
                    let skip = skip("leaving::session_leaving::a_test", case, reason);
                    assert!(!list.allows(place, &skip), "{place}: {skip}");
                }
            }
        }
    }

    #[test]
    fn entries_name_places_and_tests_that_exist() {
        let series = vm::SERIES.iter().map(|series| Place::Guest(series.name));
        let places: Vec<_> = [Place::Host, Place::Offline, Place::Ci]
            .into_iter()
            .chain(series)
            .map(|p| p.to_string())
            .collect();
        let root = places::root();
        let crates =
            places::crates().unwrap().into_iter().chain(["tests", "xtask"].map(|name| root.join(name)));
        let text: String = crates.map(|folder| sources(&folder)).collect();
        for entry in SkipList::read().unwrap().skip {
            assert!(entry.why.len() > 10 && !entry.places.is_empty(), "{entry}");
            for place in &entry.places {
                assert!(places.contains(place), "{entry}: {place} is none of {places:?}");
            }
            let name = entry.test.rsplit("::").next().unwrap();
            if !name.contains('*') && entry.test.contains("::") {
                assert!(text.contains(&format!("fn {name}(")), "{entry}: there is no such test");
            }
            let mut path = entry.test.split("::");
            let (program, module) = (path.next().unwrap(), path.next().unwrap_or("*"));
            let file = if module == "*" { "main" } else { module };
            let is_there = ["speed_bump_", tally::IGNORED].iter().any(|start| program.starts_with(start))
                || program.contains('*')
                || root.join(format!("tests/{program}/{file}.rs")).is_file();
            assert!(is_there, "{entry}: there is no such file of tests");
        }
    }
}
