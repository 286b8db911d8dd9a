//! Requests and answers.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
};

use serde::{Deserialize, Serialize};

/// Bytes of a line: a pattern and its options, or what there is to say of some thousand targets.
const LONGEST: u64 = 4 << 20;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum Ask {
    /// What the session is about.
    About,
    /// To change doses.
    Set {
        /// As a targets file has it: pattern and options.
        line: String,
    },
    /// To add a target.
    Add {
        /// As a targets file has it.
        line: String,
    },
    /// To drop targets.
    Drop {
        /// Their pattern or id.
        pattern: String,
    },
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer<T> {
    /// It was done.
    Ok(T),
    /// It was not, and why.
    Error(String),
}

/// Reads a line of JSON; `None` if it is none.
pub(super) fn read<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line).ok())
}

/// Writes a line of JSON.
pub(super) fn write(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}
