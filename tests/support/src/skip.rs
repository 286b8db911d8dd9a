//! How a test says that this machine cannot run it.
//!
//! A test that did not run must not count as passed. libtest knows no way to say so from inside a test, so
//! the test writes one line to the file that `SPEED_BUMP_SKIPS` names, and `cargo xtask test` reads it.
//!
//! A test of many cases skips them one by one (`skip_case!`) and says that one ran (`case_ran!`). If it says
//! the first and never the second, nothing of it ran, and it counts as skipped.
//!
//! What may be skipped is listed in tests/skips.toml. Only what the machine cannot do is a reason to skip:
//! what fails is a failure.

use std::{env, fmt, fs::OpenOptions, io::Write as _};

/// Names the file that collects skips, and tests of which a case ran, one line each.
pub const FILE_VARIABLE: &str = "SPEED_BUMP_SKIPS";

/// One thing that did not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// The test, by its full path.
    pub test: String,
    /// The part of the test that did not run; `None` when nothing of it did.
    pub case: Option<String>,
    /// Why: what this machine lacks.
    pub reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIPPED {}", self.test)?;
        if let Some(case) = &self.case {
            write!(f, " [{case}]")?;
        }
        write!(f, ": because {}", self.reason)
    }
}

impl Skip {
    /// Reads a line that [`report`] wrote; `None` for any other line.
    pub fn parse(line: &str) -> Option<Self> {
        let (what, reason) = line.strip_prefix("SKIPPED ")?.split_once(": because ")?;
        let (test, case) = match what.strip_suffix(']').and_then(|what| what.split_once(" [")) {
            Some((test, case)) => (test, Some(case.to_owned())),
            None => (what, None),
        };
        Some(Self { test: test.to_owned(), case, reason: reason.to_owned() })
    }
}

/// A test of several cases, of which one ran.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ran {
    /// The test, by its full path.
    pub test: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RAN a case of {}", self.test)
    }
}

impl Ran {
    /// Reads a line that [`report_ran`] wrote; `None` for any other line.
    pub fn parse(line: &str) -> Option<Self> {
        Some(Self { test: line.strip_prefix("RAN a case of ")?.to_owned() })
    }
}

/// Records a skip, and shows it past libtest's capture. The macros below call it.
pub fn report(skip: &Skip) {
    let line = line(skip);
    let _ = std::io::stderr().write_all(line.as_bytes());
    record(&line);
}

/// Records that a case of a test ran. The macro below calls it.
pub fn report_ran(ran: &Ran) {
    record(&line(ran));
}

fn line(of: &impl fmt::Display) -> String {
    of.to_string().replace(['\n', '\r'], " ") + "\n"
}

fn record(line: &str) {
    let Some(path) = env::var_os(FILE_VARIABLE) else { return };
    // One line, one write: tests run in parallel threads and processes.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    // A skip that is not recorded would count as a pass.
    #[allow(clippy::panic, reason = "fails the test that could not record its skip")]
    if let Err(error) = written {
        panic!("cannot record in {}: {error}", path.display());
    }
}

/// The enclosing function's path, from the type name of a function inside it.
#[doc(hidden)]
pub fn enclosing<T>(_inner: T) -> String {
    let name = std::any::type_name::<T>();
    let name = name.rsplit_once("::").map_or(name, |(outer, _)| outer);
    name.trim_end_matches("::{{closure}}").to_owned()
}

/// The running test's path. libtest names a thread after it, which is right in what several tests call too;
/// where it runs a test on the main thread (`--test-threads=1`), the function that skips has to do.
#[doc(hidden)]
pub fn running(enclosing: String) -> String {
    let (current, program) = (std::thread::current(), program());
    match (current.name(), enclosing.split_once("::")) {
        (Some(test), _) if test != "main" => format!("{program}::{test}"),
        // What tests call may be of another crate.
        (_, Some((_, path))) => format!("{program}::{path}"),
        _ => enclosing,
    }
}

/// Says that this test does not run here, and why: `return skip!("the kernel lacks {what}");`
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        fn here() {}
        $crate::skip::report(&$crate::skip::Skip {
            test: $crate::skip::running($crate::skip::enclosing(here)),
            case: None,
            reason: format!($($reason)+),
        })
    }};
}

/// Says that one case of this test does not run here, and why, while others may:
/// `skip_case!("python 3.15", "no such interpreter");`
#[macro_export]
macro_rules! skip_case {
    ($case:expr, $($reason:tt)+) => {{
        fn here() {}
        $crate::skip::report(&$crate::skip::Skip {
            test: $crate::skip::running($crate::skip::enclosing(here)),
            case: Some($case.to_string()),
            reason: format!($($reason)+),
        })
    }};
}

/// Says that a case of this test ran, where others are skipped.
#[macro_export]
macro_rules! case_ran {
    () => {{
        fn here() {}
        $crate::skip::report_ran(&$crate::skip::Ran {
            test: $crate::skip::running($crate::skip::enclosing(here)),
        })
    }};
}

/// The name of the running test program, as cargo knows it: `native`.
pub fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo puts a hash behind it.
    match name.rsplit_once('-') {
        Some((program, hash)) if hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => program.to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_round_trip() {
        for (case, reason) in [(None, "no gcc"), (Some("3.15 [container]"), "needs root: really")] {
            let skip =
                Skip { test: "attach::a_test".into(), case: case.map(str::to_owned), reason: reason.into() };
            assert_eq!(Skip::parse(&skip.to_string()), Some(skip));
        }
        assert_eq!(Skip::parse("test attach::a_test ... ok"), None);
        assert_eq!(Skip::parse("SKIPPED without a reason"), None);
        let ran = Ran { test: "attach::a_test".into() };
        assert_eq!(Ran::parse(&ran.to_string()), Some(ran.clone()));
        assert_eq!((Skip::parse(&ran.to_string()), Ran::parse("test attach::a_test ... ok")), (None, None));
    }

    #[test]
    fn the_program_goes_by_its_name_without_the_hash() {
        assert_eq!(program(), "speed_bump_testing");
    }

    #[test]
    fn a_test_names_itself() {
        fn here() {}
        assert!(enclosing(here).ends_with("skip::tests::a_test_names_itself"), "{}", enclosing(here));
        let inside_a_closure = || {
            fn here() {}
            enclosing(here)
        };
        assert!(inside_a_closure().ends_with("a_test_names_itself"), "{}", inside_a_closure());
    }

    #[test]
    fn what_tests_call_names_the_test() {
        fn called() -> String {
            fn here() {}
            running(enclosing(here))
        }
        let on_a_thread_of_its_own = std::thread::current().name() != Some("main");
        let expected =
            if on_a_thread_of_its_own { "tests::what_tests_call_names_the_test" } else { "called" };
        assert!(called().ends_with(expected), "{}", called());
        assert!(called().starts_with("speed_bump_testing::skip::"), "{}", called());
    }
}
