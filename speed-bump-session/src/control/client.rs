//! Asking a session that runs.

use std::{fs, io, os::unix::net::UnixStream, time::Duration};

use serde::Deserialize;

use super::{
    ControlError,
    choice::Changed,
    place::{Place, check_socket},
    request::{Answer, Ask, read, write},
    server::About,
};
use crate::units::Pid;

/// How long a session may take to say what it is about. One that was stopped says nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long it may take to change: it may wait for signals under way, or resolve and attach.
const PATIENCE_TO_CHANGE: Duration = Duration::from_secs(10);

/// The sessions that run, each with the process of the tool. Sockets of processes that are gone are removed.
///
/// # Errors
/// The folder of the sockets cannot be used.
pub fn sessions() -> Result<Vec<(Pid, About)>, ControlError> {
    let Some(place) = Place::look()? else { return Ok(Vec::new()) };
    let mut sessions = Vec::new();
    for pid in place.sessions()? {
        match ask::<About>(&place, pid, &Ask::About) {
            Ok(about) => sessions.push((pid, about)),
            Err(ControlError::NoSession { .. }) => {}
            Err(error) => tracing::warn!("session {pid}: {error}"),
        }
    }
    Ok(sessions)
}

/// What is to change in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Doses.
    Set,
    /// A target comes.
    Add,
    /// Targets go.
    Drop,
}

/// Changes a session: that of this process of the tool, or the only one that runs. `line` is a pattern with
/// options, as a targets file has it; to drop targets, their pattern or id.
///
/// # Errors
/// There is no such session, or it refuses.
pub fn change(session: Option<Pid>, change: Change, line: &str) -> Result<(Pid, Changed), ControlError> {
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
    let asks = match change {
        Change::Set => Ask::Set { line },
        Change::Add => Ask::Add { line },
        Change::Drop => Ask::Drop { pattern: line },
    };
    Ok((pid, ask(&place, pid, &asks)?))
}

fn ask<T: for<'a> Deserialize<'a>>(place: &Place, pid: Pid, ask: &Ask) -> Result<T, ControlError> {
    let path = place.socket(pid);
    let failed = |error: io::Error| ControlError::Io { path: path.clone(), error };
    match check_socket(&path) {
        Err(ControlError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ControlError::NoSession { pid });
        }
        checked => checked?,
    }
    let stream = match UnixStream::connect(&path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Nobody listens any more: its process was killed.
            let _ = fs::remove_file(&path);
            return Err(ControlError::NoSession { pid });
        }
        stream => stream.map_err(failed)?,
    };
    let patience = if matches!(ask, Ask::About) { PATIENCE } else { PATIENCE_TO_CHANGE };
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    write(&stream, ask).map_err(failed)?;
    match read::<Answer<T>>(&stream).map_err(failed)? {
        Some(Answer::Ok(answer)) => Ok(answer),
        Some(Answer::Error(why)) => Err(ControlError::Refused(why)),
        None => Err(ControlError::Answer { pid }),
    }
}
