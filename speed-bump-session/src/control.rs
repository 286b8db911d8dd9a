//! The protocol by which programs drive sessions, and the sockets at which sessions speak it: requests and
//! answers, each a line of JSON. docs/agent.md describes them; the schema is [`SCHEMA`].
//!
//! What is asked of a session that runs is answered here (`running`), whoever asks: the program that started
//! it by `agent`, or another tool by the session's socket (`server`, `client`). The sockets lie in
//! [`FOLDER`], which is its owner's alone; who connects is looked at too.

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

/// Where the sockets are.
pub const FOLDER: &str = "/run/speed-bump-ebpf/sessions";

/// Name and version of the protocol; a change that programs would notice gets another number.
pub const SCHEMA: &str = "speed-bump/agent/1";

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
    /// It speaks another protocol.
    #[error(
        "session {pid} is of version {version} ({schema}), and this tool of {} ({SCHEMA}): use that version \
         of the tool for it",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Which session.
        pid: Pid,
        /// The version of its tool.
        version: String,
        /// Its protocol.
        schema: String,
    },
    /// Nothing came in time.
    #[error("session {pid} does not answer: was it stopped, or is it of another version?")]
    Silent {
        /// Which session.
        pid: Pid,
    },
    /// The session refused.
    #[error(transparent)]
    Refused(RequestError),
}

fn list(pids: &[Pid]) -> String {
    pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ")
}
