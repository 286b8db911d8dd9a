//! Why tests failed: what libtest shows of the first panic of each.

use std::collections::BTreeMap;

/// Lines of a panic that are kept, and characters of a line.
const LINES: usize = 6;
const CHARACTERS: usize = 400;

/// The first panic of each test that failed.
#[derive(Debug, Default)]
pub(crate) struct Panics {
    of_tests: BTreeMap<String, Vec<String>>,
    /// The test whose output is being read.
    test: Option<String>,
    /// Whether a panic of it is being read.
    is_panic: bool,
}

impl Panics {
    /// Reads a line of libtest.
    pub(crate) fn read_line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            self.test = Some(name.to_owned());
            self.is_panic = false;
            return;
        }
        let Some(test) = &self.test else { return };
        if line == "failures:" {
            self.test = None;
            return;
        }
        let begins = line.starts_with("thread '") && line.contains(" panicked at ");
        if begins && !self.of_tests.contains_key(test) {
            self.is_panic = true;
        } else if begins || line == "stack backtrace:" || line.starts_with("note: run with `RUST_BACKTRACE") {
            self.is_panic = false;
        }
        if self.is_panic && !line.is_empty() {
            let lines = self.of_tests.entry(test.clone()).or_default();
            if lines.len() < LINES {
                lines.push(line.chars().take(CHARACTERS).collect());
            }
        }
    }

    /// The lines of a test's panic.
    pub(crate) fn for_test(&self, test: &str) -> &[String] {
        self.of_tests.get(test).map(Vec::as_slice).unwrap_or_default()
    }

    /// Adds the panics of another one.
    pub(crate) fn extend(&mut self, other: Self) {
        self.of_tests.extend(other.of_tests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Panics {
        let mut panics = Panics::default();
        text.lines().for_each(|line| panics.read_line(line));
        panics
    }

    #[test]
    fn the_first_panic_of_each_test_is_kept() {
        let panics = read(
            "thread 'a' (1) panicked at elsewhere:1:1:\n\
             failures:\n\
             \n\
             ---- a::b stdout ----\n\
             said before\n\
             \n\
             thread 'a::b' (7) panicked at tests/a.rs:1:2:\n\
             3 of 4\n\
             stack backtrace:\n\
             0: core\n\
             \n\
             thread 'a::b' (8) panicked at tests/b.rs:1:2:\n\
             a scoped thread panicked\n\
             ---- c stdout ----\n\
             thread 'c' (9) panicked at tests/c.rs:3:4:\n\
             five\n\
             note: run with `RUST_BACKTRACE=1`\n\
             \n\
             failures:\n\
             a::b\n",
        );
        assert_eq!(panics.for_test("a::b"), ["thread 'a::b' (7) panicked at tests/a.rs:1:2:", "3 of 4"]);
        assert_eq!(panics.for_test("c"), ["thread 'c' (9) panicked at tests/c.rs:3:4:", "five"]);
        assert_eq!(panics.for_test("d"), [""; 0]);
    }

    #[test]
    fn long_panics_are_cut() {
        let mut text = String::from("---- a stdout ----\nthread 'a' (1) panicked at x:\n");
        (0..100).for_each(|_| text.push_str(&format!("{}\n", "é".repeat(1_000))));
        let panics = read(&text);
        assert_eq!(panics.for_test("a").len(), LINES);
        assert!(panics.for_test("a").iter().all(|line| line.chars().count() <= CHARACTERS));
    }
}
