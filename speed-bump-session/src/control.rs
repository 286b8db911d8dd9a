//! Changing a session that somebody else runs: each one listens at a socket, a request and an answer for each
//! connection, each a line of JSON.
//!
//! The sockets lie in [`FOLDER`], which is its owner's alone; who connects is looked at too.

pub mod choice;
pub mod client;
mod place;
mod request;
pub mod server;

use std::{io, path::PathBuf};

use crate::units::Pid;

/// Where the sockets are.
pub const FOLDER: &str = "/run/speed-bump-ebpf/sessions";

/// Name and version of the protocol.
pub const SCHEMA: &str = "speed-bump/control/1";

/// Why a session cannot be reached, or would not.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Somebody else could have put things there.
    #[error("{}: {why}: it is not used; remove it, or mend its owner and mode", .path.display())]
    Unsafe {
        /// The folder or socket.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system would not.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The folder or socket.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// No such session.
    #[error("no session runs as process {pid}; `speed-bump-ebpf sessions` lists those that run")]
    NoSession {
        /// Which was asked for.
        pid: Pid,
    },
    /// No session at all.
    #[error("no session runs")]
    None,
    /// Several, and none was named.
    #[error("{} sessions run: name one of them with --session: {}", .pids.len(), list(.pids))]
    Several {
        /// The processes of the tool.
        pids: Vec<Pid>,
    },
    /// What came is no answer.
    #[error("session {pid} does not answer as it should: is it of another version?")]
    Answer {
        /// Which session.
        pid: Pid,
    },
    /// The session refused.
    #[error("{0}")]
    Refused(String),
}

fn list(pids: &[Pid]) -> String {
    pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ")
}
