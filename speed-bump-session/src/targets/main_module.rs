//! The module `__main__`: Python's name for the file that a process runs.
//!
//! Only a process knows which file it runs. So a line with the module `__main__` selects in the files that
//! the caller has found, and in files whose path matches as written (`pkg/__main__.py`).

use std::iter;

use super::{Targets, pattern::Pattern};

/// The module that stands for the files that processes run.
const MAIN: &str = "__main__";

/// The pattern of a module; for `__main__`, the patterns of the files too.
pub(super) fn modules<'p>(
    module: &'p Pattern,
    main_files: &'p [Pattern],
) -> impl Iterator<Item = &'p Pattern> {
    let files = if module.as_str() == MAIN { main_files } else { &[] };
    iter::once(module).chain(files)
}

impl Targets {
    /// Returns these targets with a change: the module `__main__` also stands for the files that match one of
    /// these patterns.
    #[must_use]
    pub fn with_main_files(self, globs: &[String]) -> Self {
        // No path is too long for a pattern.
        self.with_main_patterns(globs.iter().filter_map(|glob| Pattern::new(glob).ok()).collect())
    }

    /// Returns these targets with a change: the module `__main__` stands for the same files as in `others`.
    #[must_use]
    pub fn with_main_files_of(self, others: &Self) -> Self {
        self.with_main_patterns(others.main_files.clone())
    }

    fn with_main_patterns(self, main_files: Vec<Pattern>) -> Self {
        let Self { targets, exclusions, no_target, .. } = self;
        Self { no_target, ..Self::new(targets, exclusions, main_files) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::targets::{ParsedTargets, Targets, selector};
    use speed_bump_selector::Selector;

    /// The target that selects a function. Checks that the helper's selector gives the same.
    fn winner(targets: &Targets, file: &str, name: &str) -> Option<u32> {
        let here = targets.python_in(file).select(name);
        let mut matching: Vec<_> = here.winner.iter().chain(&here.shadowed).collect();
        matching.dedup();
        assert_eq!(matching.len(), here.winner.iter().count() + here.shadowed.len(), "each target once");
        let bytes = selector::compile(targets).unwrap();
        let there = Selector::new(&bytes).unwrap().select(file, name);
        assert_eq!(here.winner.map(|index| index.0), there);
        there
    }

    #[test]
    fn main_is_the_file_that_runs() {
        let text = "__main__:f\n!__main__:g\n*:g\n*/__main__.py:h\n";
        let alone = ParsedTargets::parse("t", text.as_bytes(), true).unwrap().decide(|_| false);
        assert_eq!(winner(&alone, "/srv/app.py", "f"), None);
        let targets = alone.with_main_files(&["/srv/app.py".into(), "*/__main__.py".into()]);
        for (file, name, expected) in [
            ("/srv/app.py", "f", Some(0)),
            ("/srv/app.py", "g", None),
            ("/srv/other.py", "f", None),
            ("/srv/other.py", "g", Some(1)),
            ("/srv/pkg/__main__.py", "f", Some(0)),
            ("/srv/pkg/__main__.py", "h", Some(2)),
        ] {
            assert_eq!(winner(&targets, file, name), expected, "{file} {name}");
        }
    }
}
