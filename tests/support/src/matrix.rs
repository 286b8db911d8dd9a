//! The program of `tests/fixtures/matrix`, which calls functions of every shape and knows how often.

use std::{collections::BTreeMap, path::PathBuf};

use crate::places;

/// Calls that were started, by file and qualified name.
pub type Calls = BTreeMap<(String, String), u64>;

/// The targets that select every function which the program counts, and few others.
pub const TARGETS: &str = "\
    */matrix/subjects.py:*\n\
    */matrix/special.py:*\n\
    */matrix/suspended.py:*\n\
    */matrix/late.py:*\n\
    <matrix *>:*\n\
    <string>:matrix_*\n\
    !*:*spared*\n";

/// Whether the program keeps count of this function of this file: those of other files are not its own.
pub fn is_subject(file: &str, name: &str) -> bool {
    let files = ["subjects.py", "special.py", "suspended.py", "late.py"];
    let is_own = files.iter().any(|own| file.ends_with(&format!("/matrix/{own}")));
    (is_own || file.starts_with("<matrix ")) && !name.contains("spared")
}

/// The program's script.
pub fn script() -> PathBuf {
    places::fixtures().join("matrix/service.py")
}

/// What the program called.
#[derive(Debug, Default)]
pub struct Report {
    /// How often.
    pub calls: Calls,
    cases: BTreeMap<(String, String), Vec<String>>,
}

impl Report {
    /// Takes up the calls of a function, of file and name, in one of the program's cases.
    pub fn add(&mut self, function: (String, String), case: String, calls: u64) {
        self.cases.entry(function.clone()).or_default().push(case);
        *self.calls.entry(function).or_default() += calls;
    }

    /// How another count differs from the program's own: a line for each function. Empty when it does not.
    pub fn differences(&self, counted: &Calls) -> Vec<String> {
        let mut lines = Vec::new();
        for function in self.calls.keys().chain(counted.keys().filter(|f| !self.calls.contains_key(*f))) {
            let of = |calls: &Calls| calls.get(function).copied().unwrap_or(0);
            if of(&self.calls) != of(counted) {
                let (file, name) = function;
                let file = file.rsplit('/').next().unwrap_or(file);
                lines.push(format!(
                    "{name} in {file}: {} calls, {} counted (cases: {})",
                    of(&self.calls),
                    of(counted),
                    self.cases.get(function).map_or_else(|| "none".to_owned(), |cases| cases.join(", ")),
                ));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_function_and_its_cases() {
        let function = |name: &str| ("/matrix/late.py".to_owned(), name.to_owned());
        let mut report = Report::default();
        report.add(function("f"), "plain".to_owned(), 2);
        report.add(function("f"), "again".to_owned(), 1);
        report.add(function("idle"), "plain".to_owned(), 0);
        assert!(report.differences(&Calls::from([(function("f"), 3)])).is_empty());
        assert_eq!(
            report.differences(&Calls::from([(function("f"), 2), (function("g"), 1)])),
            [
                "f in late.py: 3 calls, 2 counted (cases: plain, again)",
                "g in late.py: 0 calls, 1 counted (cases: none)"
            ]
        );
    }
}
