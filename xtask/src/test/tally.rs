//! Counts the results that libtest prints and the skips of tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use speed_bump_testing::skip::{Ran, Skip};

use super::{
    panics::Panics,
    skip_list::{Place, SkipList},
};

/// Stands for the program in the path of a test that is marked `#[ignore]`, since libtest does not name the
/// program.
pub(crate) const IGNORED: &str = "ignored";

/// The reason of a test that skipped each of its cases.
const ALL_CASES: &str = "every case of it was skipped";

/// The results of the tests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    /// Tests that libtest ignored. It does not count them as passed.
    ignored: BTreeSet<Skip>,
    failures: BTreeSet<String>,
    /// Tests that failed beside others and passed alone.
    passed_alone: BTreeSet<String>,
    /// How many test programs have begun and not reported their results.
    without_result: usize,
    panics: Panics,
    skips: BTreeSet<Skip>,
    /// Tests of which at least one case ran.
    ran: BTreeSet<String>,
    broken: bool,
    /// Skips that are not allowed here; they have failed.
    unlisted: BTreeSet<Skip>,
    /// Entries of the list that matched no skip.
    unused: Vec<String>,
    place: Option<Place>,
}

impl Tally {
    /// Reads a line of `cargo test`.
    pub(crate) fn read_line(&mut self, line: &str) {
        self.panics.read_line(line);
        if line.strip_prefix("running ").is_some_and(|rest| rest.ends_with(" tests") || rest == "1 test") {
            self.without_result += 1;
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.without_result = self.without_result.saturating_sub(1);
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
        } else if let Some((name, outcome)) =
            line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... "))
        {
            if outcome == "FAILED" {
                self.failures.insert(name.to_owned());
            } else if let Some(reason) = outcome.strip_prefix("ignored") {
                let reason = reason.strip_prefix(", ").unwrap_or("it says so");
                let test = format!("{IGNORED}::{name}");
                self.ignored.insert(Skip { test, case: None, reason: reason.to_owned() });
            }
        }
    }

    /// Reads all output of the tests of one file. The program ended with this exit code (as a shell reports
    /// it).
    pub(crate) fn read_program(&mut self, name: &str, output: &str, status: i32) {
        let mut own = Self::default();
        output.lines().for_each(|line| own.read_line(line));
        self.passed += own.passed;
        self.failed += own.failed;
        self.ignored.extend(own.ignored);
        self.failures.extend(own.failures);
        self.panics.extend(own.panics);
        match status {
            // The exit codes of libtest: all tests passed, or some failed.
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

    /// The failed tests, if nothing else went wrong; `None` if, for example, a test program did not report
    /// its results.
    pub(super) fn explained_failures(&self) -> Option<&BTreeSet<String>> {
        let is_all = self.without_result == 0 && self.failures.len() == self.failed;
        (is_all && self.failed > 0).then_some(&self.failures)
    }

    /// Counts a test that has failed as passed: alone, it has.
    pub(super) fn has_passed_alone(&mut self, test: String) {
        if self.failures.remove(&test) {
            self.failed -= 1;
            self.passed += 1;
            self.passed_alone.insert(test);
        }
    }

    /// Passed, failed and skipped.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.passed, self.failed, self.skips.len() + self.ignored.len()]
    }

    /// Why tests were skipped, each reason once.
    pub(crate) fn skip_reasons(&self) -> impl Iterator<Item = &str> {
        self.skips.iter().map(|skip| skip.reason.as_str()).collect::<BTreeSet<_>>().into_iter()
    }

    /// Reads the tests' records of skips and of cases that ran.
    pub(crate) fn read_skips(&mut self, text: &str) {
        self.skips.extend(text.lines().filter_map(Skip::parse));
        self.ran.extend(text.lines().filter_map(Ran::parse).map(|ran| ran.test));
    }

    /// Adds the exit status of `cargo test`, subtracts skipped tests from those that passed, and counts skips
    /// that are not allowed here as failed.
    pub(crate) fn finish(&mut self, success: bool, list: &SkipList, place: Place) {
        // A skip without a test's path is a whole program's; its tests may have run anyway.
        let tests = self.skips.iter().map(|skip| &skip.test).filter(|test| test.contains("::"));
        let is_whole = |test: &&String| {
            let whole = |skip: &Skip| skip.test == **test && skip.case.is_none();
            self.skips.iter().any(whole) || !self.ran.contains(*test)
        };
        let mut not_passed: BTreeSet<String> = tests.filter(is_whole).cloned().collect();
        for test in &not_passed {
            let skip = |case| Skip { test: test.clone(), case, reason: ALL_CASES.to_owned() };
            let is_said = |skip: &Skip| skip.test == *test && skip.case.is_none();
            if !self.skips.iter().any(is_said) {
                self.skips.insert(skip(None));
            }
        }
        let of_list = |skips: BTreeSet<Skip>| -> (BTreeSet<Skip>, BTreeSet<Skip>) {
            skips.into_iter().partition(|skip| list.allows(place, skip))
        };
        (self.skips, self.unlisted) = of_list(std::mem::take(&mut self.skips));
        let failed: BTreeSet<&String> = self.unlisted.iter().map(|skip| &skip.test).collect();
        self.failed += failed.len();
        not_passed.extend(failed.into_iter().filter(|test| test.contains("::")).cloned());
        // Libtest has not counted these as passed, and does not name their program.
        let has_failed = |test: &str| {
            let without_program = test.split_once("::").map(|(_, test)| test);
            [Some(test), without_program].into_iter().flatten().any(|test| self.failures.contains(test))
        };
        not_passed.retain(|test| !has_failed(test));
        let (ignored, unlisted) = of_list(std::mem::take(&mut self.ignored));
        self.failed += unlisted.len();
        self.ignored = ignored;
        self.unlisted.extend(unlisted);
        self.passed = self.passed.saturating_sub(not_passed.len());
        self.place = Some(place);
        if !success && self.failed == 0 {
            // It did not compile, or a test program died: then libtest prints no count for it.
            self.broken = true;
            self.failed = 1;
        }
    }

    /// Finds entries of the list that matched no skip. Only meaningful after a run of all tests.
    pub(crate) fn look_for_unused(&mut self, list: &SkipList, place: Place) {
        let skips: Vec<&Skip> = self.skips.iter().chain(&self.ignored).collect();
        self.unused = list.unused(place, &skips).iter().map(ToString::to_string).collect();
    }

    /// Whether nothing failed and something ran.
    pub(crate) fn is_success(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.broken {
            writeln!(f, "cargo test failed without a failed test: its output above has the error")?;
        }
        if self.passed == 0 && self.failed == 0 {
            writeln!(f, "no test has run to its end, which is no success")?;
        }
        // One line a reason: a test with many cases often lacks one thing for all of them.
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for skip in &self.skips {
            by_reason.entry(&skip.reason).or_default().push(what(skip));
        }
        for (reason, tests) in by_reason {
            writeln!(f, "SKIPPED because {reason}:")?;
            for test in tests {
                writeln!(f, "    {test}")?;
            }
        }
        for Skip { test, reason, .. } in &self.ignored {
            writeln!(f, "SKIPPED because it is marked so: {test}: {reason}")?;
        }
        for entry in &self.unused {
            writeln!(f, "warning: {} lists what was not skipped: {entry}", SkipList::FILE)?;
        }
        for name in &self.passed_alone {
            writeln!(f, "PASSED ALONE, having failed beside other tests: {name}")?;
            for line in self.panics.for_test(name) {
                writeln!(f, "    {line}")?;
            }
        }
        // Failures come last, for a reader who reads only the end.
        for name in &self.failures {
            writeln!(f, "FAILED {name}")?;
            for line in self.panics.for_test(name) {
                writeln!(f, "    {line}")?;
            }
        }
        for skip in &self.unlisted {
            writeln!(f, "FAILED {}: skipped because {}", what(skip), skip.reason)?;
        }
        if let (false, Some(place)) = (self.unlisted.is_empty(), self.place) {
            writeln!(
                f,
                "What is skipped and not listed for `{place}` in {} has failed. Provide what is missing; if \
                 that cannot be done on any such machine, list it there.",
                SkipList::FILE
            )?;
        }
        let [passed, failed, skipped] = self.counts();
        writeln!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// A skip, as the report names it.
fn what(skip: &Skip) -> String {
    match &skip.case {
        Some(case) => format!("{} [{case}]", skip.test),
        None => skip.test.clone(),
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
mod tests;
