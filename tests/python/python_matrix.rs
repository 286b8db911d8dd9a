//! Every shape of Python function on every interpreter of this machine: calls are counted exactly, without
//! flags or preparations in the program.
//!
//! The program knows what it calls; the first of the two tests of each interpreter holds that against what
//! the interpreter says of itself, the second against what the tool counts.

#![allow(clippy::unwrap_used, clippy::panic)]

mod embedded;
mod interpreters;
mod program;

use anyhow::{Context as _, Result, ensure};
use interpreters::{Interpreter, Wanted};
use program::{Program, counted};
use speed_bump_testing::{
    Attached,
    matrix::{TARGETS, is_subject},
    session::obstacle,
    skip,
};

/// How often everything is called in a session: once cold, then specialised.
const ROUNDS: usize = 3;

/// Runs a case on each of the interpreters, and fails with all that went wrong on any.
fn on_each(interpreters: &[Interpreter], case: impl Fn(&Interpreter) -> Result<Vec<String>>) {
    let mut wrong = Vec::new();
    for interpreter in interpreters {
        match case(interpreter) {
            Ok(differences) => wrong.extend(differences.iter().map(|line| format!("{interpreter}: {line}"))),
            Err(error) => wrong.push(format!("{interpreter}: {error:#}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the program's numbers are what the interpreter counts, case by case.
fn program_is_right(interpreter: &Interpreter) -> Result<Vec<String>> {
    let mut program = Program::start(interpreter)?;
    let mut wrong = Vec::new();
    let cases = program.cases()?;
    ensure!(cases.len() > 30, "only {} cases", cases.len());
    for case in cases {
        for command in ["reset", "reference", &format!("round {case}")] {
            program.ask(command).with_context(|| format!("case {case}"))?;
        }
        let (mut reference, unsure) = program.reference()?;
        let mut report = program.report()?;
        report.calls.retain(|(_, name), _| !unsure.contains(name));
        reference.retain(|function, _| {
            is_subject(&function.0, &function.1) || report.calls.contains_key(function)
        });
        wrong.extend(report.differences(&reference));
    }
    program.quit()?;
    Ok(wrong)
}

/// Whether the tool's numbers are the program's, with everything called `ROUNDS` times in one session.
///
/// `warm` says that all was called before, too: then code is specialised, and its functions are known.
fn tool_is_right(interpreter: &Interpreter, warm: bool) -> Result<Vec<String>> {
    let mut program = Program::start(interpreter)?;
    if warm {
        program.ask("round")?;
    }
    program.ask("reset")?;
    let session = Attached::start(program.pid(), TARGETS, &["--delay", "0"])?;
    for _ in 0..ROUNDS {
        program.ask("round")?;
    }
    let ended = session.stop()?;
    let counted = counted(&ended);
    let report = program.report()?;
    // Nothing is left that would count, or fail, afterwards.
    program.ask("round")?;
    program.quit()?;
    Ok(report.differences(&counted))
}

fn warm(interpreter: &Interpreter) -> Result<Vec<String>> {
    tool_is_right(interpreter, true)
}

fn cold(interpreter: &Interpreter) -> Result<Vec<String>> {
    tool_is_right(interpreter, false)
}

/// The same for functions that the standard library writes, whose file `<string>` other code shares.
fn tool_is_right_about_generated_code(interpreter: &Interpreter) -> Result<Vec<String>> {
    let mut program = Program::start(interpreter)?;
    let session = Attached::start(program.pid(), "<string>:*\n", &["--delay", "0"])?;
    for _ in 0..ROUNDS {
        program.ask("round generated")?;
    }
    let counted = counted(&session.stop()?);
    let report = program.report()?;
    program.quit()?;
    Ok(report.differences(&counted))
}

/// The same for thousands of functions that come and go where others were.
fn tool_is_right_about_churn(interpreter: &Interpreter) -> Result<Vec<String>> {
    let mut program = Program::start(interpreter)?;
    program.ask("churn 100")?;
    program.ask("reset")?;
    let session = Attached::start(program.pid(), "<matrix churn>:*\n!*:spared_\n", &["--delay", "0"])?;
    program.ask("churn 5000")?;
    let counted = counted(&session.stop()?);
    let report = program.report()?;
    program.ask("churn 100")?;
    program.quit()?;
    Ok(report.differences(&counted))
}

/// Runs a case in which the tool attaches. A macro, so that what is skipped goes by the name of the test.
macro_rules! attached {
    ($wanted:expr, $case:expr) => {
        match (obstacle(), $wanted.interpreters()) {
            (Some(why), _) => skip!("{why}"),
            (None, Err(why)) => skip!("{why}"),
            (None, Ok(found)) => on_each(&found, $case),
        }
    };
}

/// A module of tests for one kind of interpreter.
macro_rules! interpreters {
    ($($name:ident: $wanted:expr;)+) => {$(
        mod $name {
            use super::*;

            #[test]
            fn the_program_counts_as_the_interpreter_does() {
                match $wanted.interpreters() {
                    Err(why) => skip!("{why}"),
                    Ok(found) => on_each(&found, program_is_right),
                }
            }

            #[test]
            fn calls_are_counted_exactly_in_a_program_that_has_run() {
                attached!($wanted, warm);
            }

            #[test]
            fn calls_are_counted_exactly_from_the_first_on() {
                attached!($wanted, cold);
            }

            #[test]
            fn calls_of_generated_functions_are_counted_exactly() {
                attached!($wanted, tool_is_right_about_generated_code);
            }

            #[test]
            fn functions_that_come_and_go_are_told_apart() {
                attached!($wanted, tool_is_right_about_churn);
            }
        }
    )+};
}

interpreters! {
    python_3_8: Wanted::Version(3, 8);
    python_3_9: Wanted::Version(3, 9);
    python_3_10: Wanted::Version(3, 10);
    python_3_11: Wanted::Version(3, 11);
    python_3_12: Wanted::Version(3, 12);
    python_3_13: Wanted::Version(3, 13);
    python_3_14: Wanted::Version(3, 14);
    python_3_15: Wanted::Version(3, 15);
    free_threaded: Wanted::FreeThreaded;
    jit: Wanted::Jit;
    embedded_interpreters: Wanted::Embedded;
}
