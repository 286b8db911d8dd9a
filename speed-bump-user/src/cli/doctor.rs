//! `doctor`: what works here, what does not, and the way out.

use std::process::ExitCode;

use super::{
    args::DoctorArgs,
    exit::{Failure, SYSTEM},
    terminal::{print, print_as_is},
};
use crate::{
    doctor::{Check, CheckStatus, checks},
    printable::printable_json,
};

/// Prints a line for each check; fails if one does.
pub fn run(arguments: &DoctorArgs) -> Result<ExitCode, Failure> {
    let checks = checks(arguments.pid);
    if arguments.json {
        let text = serde_json::to_string_pretty(&checks).map_err(|error| Failure::new(SYSTEM, error))?;
        print_as_is(&printable_json(&text));
    } else {
        checks.iter().for_each(print_check);
    }
    let failed = checks.iter().any(|check| check.status == CheckStatus::Fail);
    Ok(if failed { SYSTEM.into() } else { ExitCode::SUCCESS })
}

fn print_check(check: &Check) {
    let status = match check.status {
        CheckStatus::Pass => "pass",
        CheckStatus::Warn => "warn",
        CheckStatus::Fail => "FAIL",
        CheckStatus::Skip => "skip",
    };
    print(format_args!("{status}  {}: {}", check.name, check.detail));
    if let Some(way_out) = &check.way_out {
        print(format_args!("      -> {way_out}"));
    }
}
