//! Counting what libtest prints and what tests skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use speed_bump_testing::skip::Skip;

/// How the tests went.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    /// Tests that libtest was told to ignore, with their reasons.
    ignored: Vec<String>,
    ignored_count: usize,
    failures: BTreeSet<String>,
    skips: BTreeSet<Skip>,
    broken: bool,
}

impl Tally {
    /// Reads a line of `cargo test`.
    pub(crate) fn read_line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.ignored_count += count(counts, "ignored");
        } else if let Some((name, outcome)) =
            line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... "))
        {
            if outcome == "FAILED" {
                self.failures.insert(name.to_owned());
            } else if let Some(reason) = outcome.strip_prefix("ignored") {
                self.ignored.push(format!("{name}{reason}"));
            }
        }
    }

    /// Reads all that one test program printed, which ended with this exit code (as a shell has it). Its name is
    /// put before those of its tests.
    pub(crate) fn read_program(&mut self, name: &str, output: &str, status: i32) {
        let mut own = Self::default();
        output.lines().for_each(|line| own.read_line(line));
        self.passed += own.passed;
        self.failed += own.failed;
        self.ignored_count += own.ignored_count;
        self.ignored.extend(own.ignored.into_iter().map(|test| format!("{name}::{test}")));
        self.failures.extend(own.failures.into_iter().map(|test| format!("{name}::{test}")));
        match status {
            // Libtest's own: all passed, and some failed.
            0 => (),
            101 if own.failed > 0 => (),
            // The exit code of timeout(1), which ran it.
            124 => self.fail(format!("{name}: its time was over")),
            _ => self.fail(format!("{name}: ended with exit code {status} and no result")),
        }
    }

    /// Counts something that is no test of its own as failed.
    pub(crate) fn fail(&mut self, what: String) {
        self.failed += 1;
        self.failures.insert(what);
    }

    /// Passed, failed and skipped.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.passed, self.failed, self.skips.len() + self.ignored_count]
    }

    /// Why tests were skipped, each reason once.
    pub(crate) fn skip_reasons(&self) -> impl Iterator<Item = &str> {
        self.skips.iter().map(|skip| skip.reason.as_str()).collect::<BTreeSet<_>>().into_iter()
    }

    /// Reads what tests wrote about what they skipped.
    pub(crate) fn read_skips(&mut self, text: &str) {
        self.skips.extend(text.lines().filter_map(Skip::parse));
    }

    /// Takes in how `cargo test` ended, and takes skipped tests out of those that passed.
    pub(crate) fn finish(&mut self, success: bool) {
        let whole = self.skips.iter().filter(|skip| skip.case.is_none()).map(|skip| skip.test.as_str());
        self.passed = self.passed.saturating_sub(whole.collect::<BTreeSet<_>>().len());
        if !success && self.failed == 0 {
            // It did not compile, or a test program died: then libtest prints no count for it.
            self.broken = true;
            self.failed = 1;
        }
    }

    /// Whether nothing failed and something ran.
    pub(crate) fn is_success(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.broken {
            writeln!(f, "cargo test failed without a failed test: see above")?;
        }
        for name in &self.failures {
            writeln!(f, "FAILED {name}")?;
        }
        // One line a reason: a test with many cases often lacks one thing for all.
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for skip in &self.skips {
            let what = match &skip.case {
                Some(case) => format!("{} [{case}]", skip.test),
                None => skip.test.clone(),
            };
            by_reason.entry(&skip.reason).or_default().push(what);
        }
        for (reason, tests) in by_reason {
            writeln!(f, "SKIPPED because {reason}:")?;
            for test in tests {
                writeln!(f, "    {test}")?;
            }
        }
        for name in &self.ignored {
            writeln!(f, "SKIPPED because it is marked so: {name}")?;
        }
        let [passed, failed, skipped] = self.counts();
        writeln!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// The number before a word: 3 for `failed` in `ok. 12 passed; 3 failed; …`.
fn count(counts: &str, word: &str) -> usize {
    let words: Vec<_> = counts.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    words
        .windows(2)
        .find(|pair| pair[1] == word)
        .and_then(|pair| pair[0].trim_start_matches("ok.").parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &str, skips: &str, success: bool) -> Tally {
        let mut tally = Tally::default();
        lines.lines().for_each(|line| tally.read_line(line));
        tally.read_skips(skips);
        tally.finish(success);
        tally
    }

    #[test]
    fn results_of_all_programs_are_added() {
        let tally = tally(
            "test a::b ... ok\n\
             test a::c ... FAILED\n\
             test a::d ... ignored, takes an hour\n\
             test result: FAILED. 11 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.1s\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n",
            "",
            false,
        );
        assert!(!tally.is_success());
        let text = tally.to_string();
        assert!(text.contains("FAILED a::c\n"), "{text}");
        assert!(text.contains("a::d, takes an hour"), "{text}");
        assert!(text.ends_with("\n14 passed, 1 failed, 1 skipped\n"), "{text}");
    }

    #[test]
    fn a_skipped_test_has_not_passed() {
        let tally = tally(
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            "SKIPPED a::b: because no gcc\n\
             SKIPPED a::c [3.14]: because no such Python\n\
             SKIPPED a::c [3.15]: because no such Python\n\
             SKIPPED a::b: because no gcc\n",
            true,
        );
        assert!(tally.is_success());
        assert!(tally.to_string().ends_with("\n4 passed, 0 failed, 3 skipped\n"), "{tally}");
        assert_eq!(tally.to_string().matches("because no such Python").count(), 1);
    }

    #[test]
    fn what_does_not_compile_has_failed() {
        let tally = tally("", "", false);
        assert!(!tally.is_success());
        assert!(tally.to_string().ends_with("\n0 passed, 1 failed, 0 skipped\n"), "{tally}");
    }

    #[test]
    fn running_nothing_is_no_success() {
        assert!(!tally("", "", true).is_success());
    }
}
