//! The protocol by which programs control sessions, and its sockets. Each request and each answer is a line
//! of JSON. docs/agent.md describes the requests and answers. The schema is [`SCHEMA`].
//!
//! `running` answers requests about a running session. Some requests come through `agent` from the program
//! that started the session. Others come from other tools through the session's socket (`server`, `client`).
//! The sockets are in [`FOLDER`], which only its owner may use. We also check who connects.

pub mod answer;
pub mod choice;
pub mod client;
pub(crate) mod error;
mod lines;
mod place;
pub mod request;
pub mod running;
pub mod server;

use std::{io, path::PathBuf};

pub use self::error::RequestError;
use crate::units::Pid;

/// The folder of the sockets.
pub const FOLDER: &str = "/run/speed-bump-ebpf/sessions";

/// Name and version of the protocol. An incompatible change gets another version.
pub const SCHEMA: &str = "speed-bump/agent/1";

/// Why we cannot reach a session, or why it has refused a request.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another user could have put files into the folder.
    #[error("{}: {why}: it is not used; remove it, or mend its owner and mode", .path.display())]
    Unsafe {
        /// The folder or socket.
        path: PathBuf,
        /// What is wrong with the folder.
        why: &'static str,
    },
    /// A system call failed.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The folder or socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// There is no such session.
    #[error("no session runs as process {pid}; `speed-bump-ebpf sessions` lists those that run")]
    NoSession {
        /// The PID in the request.
        pid: Pid,
    },
    /// There is no session.
    #[error("no session runs")]
    None,
    /// There are several sessions, and the user named none.
    #[error("{} sessions run: name one of them with --session: {}", .pids.len(), list(.pids))]
    Several {
        /// The PIDs of the tools that run these sessions.
        pids: Vec<Pid>,
    },
    /// The answer is invalid.
    #[error("session {pid} does not answer as it should: is it of another version?")]
    Answer {
        /// The PID of the session's tool.
        pid: Pid,
    },
    /// The session uses another protocol.
    #[error(
        "session {pid} is of version {version} ({schema}), and this tool of {} ({SCHEMA}): use that version \
         of the tool for it",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The PID of the session's tool.
        pid: Pid,
        /// The version of the session's tool.
        version: String,
        /// The schema of the session's protocol.
        schema: String,
    },
    /// No answer came in time.
    #[error("session {pid} does not answer: was it stopped, or is it of another version?")]
    Silent {
        /// The PID of the session's tool.
        pid: Pid,
    },
    /// The session refused the request.
    #[error(transparent)]
    Refused(RequestError),
}

fn list(pids: &[Pid]) -> String {
    pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ")
}
