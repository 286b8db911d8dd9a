//! Answers: lines of JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{RequestError, SCHEMA};
use crate::{printable::printable_json, units::Nanos};

/// The first line that a session sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The protocol: [`SCHEMA`].
    pub(crate) schema: String,
    /// The version of the tool.
    pub(crate) version: String,
}

impl Greeting {
    /// The greeting of this tool.
    pub fn own() -> Self {
        Self { schema: SCHEMA.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// An answer without the `id` of its request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// The result.
    Ok(T),
    /// The error.
    Error(RequestError),
}

/// An answer as the client reads it, without its `id`.
#[derive(Debug, Deserialize)]
pub struct Answered<T> {
    #[serde(flatten)]
    pub(crate) answer: Answer<T>,
}

/// The facts about a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The processes that the user named.
    pub pids: Vec<i32>,
    /// The session's targets.
    pub targets: Vec<TargetAbout>,
}

/// A target with its present dose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetAbout {
    /// The pattern as the user wrote it, with the option `caller=`.
    pub pattern: String,
    /// The delay of each trigger.
    pub delay_ns: u64,
    /// The number of calls per trigger.
    pub frequency: u64,
    /// The number of functions that the session knows now.
    pub functions: usize,
}

/// The answer after a request has set doses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DosesSet {
    pub(crate) at_ns: Nanos,
    /// The effect of each line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<LineSet>,
}

/// The effect of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineSet {
    /// The number of targets that the line names. Functions that these targets select later get the dose too.
    pub(crate) targets: usize,
    /// The number of functions that the session knows now.
    pub(crate) functions: usize,
    /// The present delays of these functions.
    pub(crate) delay_ns: Vec<u64>,
}

/// The answer after a request has added and dropped targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetsChanged {
    /// The numbers of the added targets, in order.
    pub(crate) targets: Vec<u32>,
    /// The number of functions that the session knows now for the added targets.
    pub(crate) functions: usize,
    /// The delays of the added targets.
    pub(crate) delay_ns: Vec<u64>,
    /// The numbers of the dropped targets.
    pub(crate) dropped: Vec<u32>,
    /// The number of functions that the dropped targets had.
    pub(crate) dropped_functions: usize,
    pub(crate) at_ns: Nanos,
}

/// An answer as a JSON value, without its envelope.
pub fn value(answer: &impl Serialize) -> Result<Value, RequestError> {
    serde_json::to_value(answer).map_err(|error| RequestError::request(format!("cannot answer: {error}")))
}

/// The whole line of an answer.
pub fn to_line(id: &Value, answer: Result<Value, RequestError>) -> String {
    let answer = match answer {
        Ok(answer) => json!({ "id": id, "ok": answer }),
        Err(error) => json!({ "id": id, "error": error }),
    };
    // The reader may be a person at a terminal.
    printable_json(&answer.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn answers_are_read_as_they_are_written() {
        let set = DosesSet {
            at_ns: Nanos(7),
            lines: vec![LineSet { targets: 1, functions: 2, delay_ns: vec![3] }],
        };
        let written = to_line(&json!([1]), value(&set));
        let read: Answered<DosesSet> = serde_json::from_str(&written).unwrap();
        assert!(matches!(read.answer, Answer::Ok(read) if read == set), "{written}");
        for error in [RequestError::request("r"), RequestError::state("s"), RequestError::usage("u")] {
            let written = to_line(&Value::Null, Err(error.clone()));
            let read: Answered<DosesSet> = serde_json::from_str(&written).unwrap();
            assert!(matches!(read.answer, Answer::Error(read) if read == error), "{written}");
        }
        for wrong in ["{}", r#"{"ok":{}}"#, r#"{"id":1,"error":"why"}"#, "[]"] {
            assert!(serde_json::from_str::<Answered<DosesSet>>(wrong).is_err(), "{wrong}");
        }
    }
}
