//! Sends requests to a running session.

use std::{fs, io, os::unix::net::UnixStream, time::Duration};

use serde::Deserialize;

pub use super::answer::{About, TargetAbout};
use super::{
    ControlError, RequestError, SCHEMA,
    answer::{Answer, Answered, DosesSet, Greeting, TargetsChanged},
    choice::NOT_ONE,
    lines::Lines,
    place::{Place, check_socket},
    request::{Ask, Drop, SetAsk},
};
use crate::{bounds::cut, units::Pid};

/// How long we wait for a session to describe itself. A stopped session does not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long we wait for a change. The session may have to wait for signals in flight, or to resolve and
/// attach.
const PATIENCE_TO_CHANGE: Duration = Duration::from_secs(10);
/// The most bytes of another tool's version that we show.
const VERSION_BYTES: usize = 64;

/// The running sessions, each with the PID of its tool. Removes the sockets of tools that are gone.
///
/// # Errors
/// The folder of the sockets is not safe to use, or cannot be read.
pub fn sessions() -> Result<Vec<(Pid, About)>, ControlError> {
    let Some(place) = Place::look()? else { return Ok(Vec::new()) };
    let mut sessions = Vec::new();
    for pid in place.sessions()? {
        match ask::<About>(&place, pid, &Ask::About {}) {
            Ok(about) => sessions.push((pid, about)),
            Err(ControlError::NoSession { .. }) => {}
            Err(error) => tracing::warn!("session {pid}: {error}"),
        }
    }
    Ok(sessions)
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets doses.
    Set,
    /// Adds a target.
    Add,
    /// Drops targets.
    Drop,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The number of targets that were changed, added or dropped.
    pub targets: usize,
    /// The number of functions that the session knows now.
    pub functions: usize,
    /// The present delays of these functions.
    pub delay_ns: Vec<u64>,
}

/// Changes a session: the session of the tool with this PID, or, with `None`, the only session. `line` is a
/// pattern with options, as in a targets file. To drop targets, `line` is their pattern or id.
///
/// # Errors
/// There is no such session, or the session refuses the change.
pub fn change(session: Option<Pid>, change: Change, line: &str) -> Result<(Pid, Changed), ControlError> {
    let is_empty = line.trim().is_empty() || line.trim_start().starts_with('#');
    if line.contains(['\n', '\r']) || change == Change::Add && is_empty {
        return Err(ControlError::Refused(RequestError::usage(NOT_ONE)));
    }
    let pid = match session {
        Some(pid) => pid,
        None => match sessions()?.as_slice() {
            [] => return Err(ControlError::None),
            [(pid, _)] => *pid,
            several => {
                return Err(ControlError::Several { pids: several.iter().map(|(pid, _)| *pid).collect() });
            }
        },
    };
    let place = Place::look()?.ok_or(ControlError::NoSession { pid })?;
    let line = line.to_owned();
    let changed = match change {
        Change::Set => {
            let DosesSet { lines, .. } = ask(&place, pid, &Ask::Set(SetAsk::line(line)))?;
            let set = lines.into_iter().next().ok_or(ControlError::Answer { pid })?;
            Changed { targets: set.targets, functions: set.functions, delay_ns: set.delay_ns }
        }
        Change::Add => {
            let asks = Ask::ChangeTargets { add: vec![line], drop: Vec::new() };
            let TargetsChanged { targets, functions, delay_ns, .. } = ask(&place, pid, &asks)?;
            Changed { targets: targets.len(), functions, delay_ns }
        }
        Change::Drop => {
            let asks = Ask::ChangeTargets { add: Vec::new(), drop: vec![Drop::Named(line)] };
            let TargetsChanged { dropped, dropped_functions, .. } = ask(&place, pid, &asks)?;
            Changed { targets: dropped.len(), functions: dropped_functions, delay_ns: vec![0] }
        }
    };
    Ok((pid, changed))
}

fn ask<T: for<'a> Deserialize<'a>>(place: &Place, pid: Pid, ask: &Ask) -> Result<T, ControlError> {
    let path = place.socket(pid);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => ControlError::Silent { pid },
        io::ErrorKind::InvalidData => ControlError::Answer { pid },
        _ => ControlError::Io { path: path.clone(), error },
    };
    match check_socket(&path) {
        Err(ControlError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ControlError::NoSession { pid });
        }
        checked => checked?,
    }
    let stream = match UnixStream::connect(&path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // No process listens on this socket any more: someone killed the tool.
            let _ = fs::remove_file(&path);
            return Err(ControlError::NoSession { pid });
        }
        stream => stream.map_err(failed)?,
    };
    let patience = if matches!(ask, Ask::About {}) { PATIENCE } else { PATIENCE_TO_CHANGE };
    let mut lines = Lines::new(&stream, patience);
    let greeting: Greeting = parsed(pid, &lines.read().map_err(failed)?)?;
    // In another protocol, the request may mean something else.
    if greeting.schema != SCHEMA {
        let start = |text: &str| cut(text, VERSION_BYTES).0.to_owned();
        let (version, schema) = (start(&greeting.version), start(&greeting.schema));
        return Err(ControlError::Version { pid, version, schema });
    }
    let request = serde_json::to_string(ask).map_err(|error| failed(error.into()))?;
    lines.write(&request).map_err(failed)?;
    let answered: Answered<T> = parsed(pid, &lines.read().map_err(failed)?)?;
    match answered.answer {
        Answer::Ok(answer) => Ok(answer),
        Answer::Error(error) => Err(ControlError::Refused(error)),
    }
}

fn parsed<T: for<'a> Deserialize<'a>>(pid: Pid, line: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(line).map_err(|_| ControlError::Answer { pid })
}
