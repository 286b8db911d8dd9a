//! Turns the output of a guest's test programs into a report like that of any test run.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::{
    guest::{End, Left},
    programs::{Engine, Program},
};
use crate::test::{
    skip_list::{Place, SkipList},
    tally::Tally,
};

/// Reads what a guest left behind for these programs. Programs that did not end have failed, and so have
/// skips that are not in the list.
pub(super) fn tally(programs: &[&Program], left: &Left, list: &SkipList, place: Place) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut is_first = true;
    for program in programs {
        match ended(&left.results, program.name)? {
            Some((output, status)) => tally.read_program(program.name, &output, status),
            // The guest died in the first program that has not ended, and did not start the others.
            None if is_first => {
                tally.fail(format!("{}: {}", program.name, death(left.end)));
                is_first = false;
            }
            None => tally.fail(format!("{}: did not run", program.name)),
        }
    }
    if left.end != End::Finished(0) && is_first {
        tally.fail(format!("after all programs: {}", death(left.end)));
    }
    read_skips(&mut tally, programs, &left.results);
    tally.finish(true, list, place);
    Ok(tally)
}

/// The results of the programs with this engine.
pub(super) fn of_engine(
    engine: Engine,
    programs: &[&Program],
    left: &Left,
    list: &SkipList,
    place: Place,
) -> Result<Tally> {
    let of_engine: Vec<&Program> =
        programs.iter().copied().filter(|program| program.engine == engine).collect();
    let mut tally = Tally::default();
    for program in &of_engine {
        match ended(&left.results, program.name)? {
            Some((output, status)) => tally.read_program(program.name, &output, status),
            None => tally.fail(format!("{}: did not run to its end", program.name)),
        }
    }
    read_skips(&mut tally, &of_engine, &left.results);
    tally.finish(true, list, place);
    Ok(tally)
}

/// The skips of these programs. A program without such a file skipped nothing.
fn read_skips(tally: &mut Tally, programs: &[&Program], results: &Path) {
    for program in programs {
        let path = results.join(format!("{}.skips", program.name));
        tally.read_skips(&fs::read_to_string(path).unwrap_or_default());
    }
}

/// A program's output, and its exit code, if it ended.
pub(super) fn ended(results: &Path, name: &str) -> Result<Option<(String, i32)>> {
    let Ok(status) = fs::read_to_string(results.join(format!("{name}.status"))) else { return Ok(None) };
    let status = status.trim().parse().with_context(|| format!("{name}.status says `{status}`"))?;
    let path = results.join(format!("{name}.out"));
    let output = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some((String::from_utf8_lossy(&output).into_owned(), status)))
}

/// A guest's end, in words.
pub(super) fn death(end: End) -> String {
    match end {
        End::Finished(status) => format!("the guest's job ended with exit code {status}"),
        End::Panicked => "the guest's kernel panicked".to_owned(),
        End::TimedOut => "the guest's time was over".to_owned(),
        End::Lost => "the guest ended, and its job had not".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::PathBuf;

    use super::*;
    use crate::vm::programs::PROGRAMS;

    const PASSED: &str =
        "test a ... ok\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
    const FAILED: &str = "test second::a ... FAILED\n\
                          test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";

    fn list() -> SkipList {
        let text = "[[skip]]\ntest = '*::a'\nbecause = 'no Python'\nplaces = ['6.1']\nwhy = 'a test'\n";
        SkipList::parse(text).unwrap()
    }

    fn report(end: End, left: &[(&str, &str)]) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in left {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let left = Left { end, results: folder.path().to_owned(), console: PathBuf::new() };
        let [first, second] = [&PROGRAMS[0], &PROGRAMS[1]];
        let tally = tally(&[first, second], &left, &list(), Place::Guest("6.1")).unwrap();
        let text = tally.to_string().replace(first.name, "first").replace(second.name, "second");
        (tally.is_success(), text)
    }

    fn result_path(program: usize, suffix: &str) -> String {
        format!("{}.{suffix}", PROGRAMS[program].name)
    }

    #[test]
    fn programs_that_ended_are_counted() {
        let names = [
            result_path(0, "out"),
            result_path(0, "status"),
            result_path(1, "out"),
            result_path(1, "status"),
        ];
        let left = |second, status| {
            [(&*names[0], PASSED), (&names[1], "0\n"), (&names[2], second), (&names[3], status)]
        };
        assert_eq!(
            report(End::Finished(0), &left(PASSED, "0\n")),
            (true, "4 passed, 0 failed, 0 skipped\n".into())
        );
        let skips = result_path(1, "skips");
        let skipped = [&left(PASSED, "0\n")[..], &[(&skips, "SKIPPED x::a: because no Python\n")]].concat();
        assert!(report(End::Finished(0), &skipped).1.ends_with("3 passed, 0 failed, 1 skipped\n"));
        let expected = "FAILED second::a\n3 passed, 1 failed, 0 skipped\n";
        assert_eq!(report(End::Finished(0), &left(FAILED, "101\n")), (false, expected.into()));
        // By a signal, with some lines or none.
        let expected =
            "FAILED second: ended with exit code 139 and no result\n2 passed, 1 failed, 0 skipped\n";
        assert_eq!(report(End::Finished(0), &left("test a ... ", "139\n")), (false, expected.into()));
        let expected = "FAILED second: its time was over\n2 passed, 1 failed, 0 skipped\n";
        assert_eq!(report(End::Finished(0), &left("test a ... ", "124\n")), (false, expected.into()));
    }

    #[test]
    fn tests_are_counted_by_engine() {
        let folder = tempfile::tempdir().unwrap();
        let signal = PROGRAMS.iter().find(|program| program.engine == Engine::Signal).unwrap();
        let programs = [&PROGRAMS[0], signal];
        for program in programs {
            fs::write(folder.path().join(format!("{}.out", program.name)), PASSED).unwrap();
            fs::write(folder.path().join(format!("{}.status", program.name)), "0\n").unwrap();
        }
        let skips = folder.path().join(format!("{}.skips", signal.name));
        fs::write(skips, "SKIPPED engines::a: because no Python\n").unwrap();
        let left = Left { end: End::Finished(0), results: folder.path().to_owned(), console: PathBuf::new() };
        let of = |engine| of_engine(engine, &programs, &left, &list(), Place::Guest("6.1"));
        let counts = Engine::ALL.map(|engine| of(engine).unwrap().counts());
        assert_eq!(counts, [[2, 0, 0], [1, 0, 1], [0, 0, 0]]);
    }

    #[test]
    fn a_guest_that_died_has_failed() {
        let names = [
            result_path(0, "out"),
            result_path(0, "status"),
            result_path(1, "out"),
            result_path(1, "status"),
        ];
        let one = [(&*names[0], PASSED), (&names[1], "0\n")];
        let expected = "FAILED second: the guest's kernel panicked\n2 passed, 1 failed, 0 skipped\n";
        assert_eq!(report(End::Panicked, &one), (false, expected.into()));
        let (success, text) = report(End::TimedOut, &[]);
        assert!(!success);
        assert!(
            text.starts_with("FAILED first: the guest's time was over\nFAILED second: did not run\n"),
            "{text}"
        );
        let both = [&one[..], &[(&names[2], PASSED), (&names[3], "0\n")]].concat();
        let expected = "FAILED after all programs: the guest ended, and its job had not\n4 passed, 1 failed, \
                        0 skipped\n";
        assert_eq!(report(End::Lost, &both), (false, expected.into()));
    }
}
