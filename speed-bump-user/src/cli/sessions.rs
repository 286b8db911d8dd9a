//! `sessions` and `set`: list and change running sessions.

use std::process::ExitCode;

use serde_json::json;

use super::{
    args::{SessionsArgs, SetArgs},
    exit::{Failure, SYSTEM, USAGE},
    terminal::{print, print_as_is, tell},
    words::counted,
};
use crate::{
    control::{
        ControlError,
        client::{self, About, Change, sessions},
    },
    printable::printable_json,
    units::Nanos,
};

/// Lists the running sessions.
pub(super) fn list(arguments: &SessionsArgs) -> Result<ExitCode, Failure> {
    let sessions = sessions()?;
    if arguments.json {
        let list: Vec<_> = sessions
            .iter()
            .map(|(session, About { pids, targets })| {
                json!({ "session": session, "pids": pids, "targets": targets })
            })
            .collect();
        let text = serde_json::to_string_pretty(&list).map_err(|error| Failure::new(SYSTEM, error))?;
        print_as_is(&printable_json(&text));
        return Ok(ExitCode::SUCCESS);
    }
    if sessions.is_empty() {
        tell("no session runs");
    }
    for (pid, about) in &sessions {
        let pids: Vec<String> = about.pids.iter().map(i32::to_string).collect();
        print(format_args!("session {pid}: process {}", pids.join(", ")));
        for target in &about.targets {
            let every = match target.frequency {
                1 => String::new(),
                frequency => format!(", every {frequency} calls"),
            };
            let (delay, functions) = (Nanos(target.delay_ns), counted(target.functions, "function"));
            print(format_args!("  {}: delay {delay}{every}; {functions}", target.pattern));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes doses and targets in a session.
pub(super) fn set(arguments: &SetArgs) -> Result<ExitCode, Failure> {
    let (change, line) = match arguments {
        SetArgs { drop: true, pattern, .. } => (Change::Drop, pattern.clone()),
        SetArgs { add, pattern, options, .. } => {
            let change = if *add { Change::Add } else { Change::Set };
            (change, format!("{pattern} {}", options.join(" ")))
        }
    };
    let (pid, changed) = client::change(arguments.session, change, &line)?;
    if change == Change::Drop {
        let (targets, functions) =
            (counted(changed.targets, "target"), counted(changed.functions, "function"));
        print(format_args!("session {pid}: dropped {targets} with {functions}"));
        return Ok(ExitCode::SUCCESS);
    }
    let delays: Vec<String> = changed.delay_ns.iter().map(|delay| Nanos(*delay).to_string()).collect();
    let later = if changed.targets > 0 { ", and those that become known later" } else { "" };
    print(format_args!(
        "session {pid}: delay {} for {}{later}",
        delays.join(", "),
        counted(changed.functions, "function")
    ));
    Ok(ExitCode::SUCCESS)
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let code = match &error {
            ControlError::Unsafe { .. }
            | ControlError::Io { .. }
            | ControlError::Answer { .. }
            | ControlError::Version { .. }
            | ControlError::Silent { .. } => SYSTEM,
            ControlError::NoSession { .. }
            | ControlError::None
            | ControlError::Several { .. }
            | ControlError::Refused(_) => USAGE,
        };
        Self::new(code, error)
    }
}
