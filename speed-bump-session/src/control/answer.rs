//! Answers, as lines of JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{RequestError, SCHEMA};
use crate::{printable::printable_json, units::Nanos};

/// The first line from the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The protocol: [`SCHEMA`].
    pub(crate) schema: String,
    /// The version of the tool.
    pub(crate) version: String,
}

impl Greeting {
    /// This tool's.
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

/// An answer with its `id`, for reading.
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
    /// Its targets.
    pub targets: Vec<TargetAbout>,
}

/// A target with its present dose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetAbout {
    /// Pattern as the user wrote it, with its option `caller=`.
    pub pattern: String,
    /// The delay of each trigger.
    pub delay_ns: u64,
    /// Every how many calls.
    pub frequency: u64,
    /// The number of functions that are known now.
    pub functions: usize,
}

/// Doses were set.
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
    /// The number of targets that the line names; their future functions get the dose too.
    pub(crate) targets: usize,
    /// The number of functions that are known now.
    pub(crate) functions: usize,
    /// The delays of these functions now.
    pub(crate) delay_ns: Vec<u64>,
}

/// Targets were added and dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetsChanged {
    /// The numbers of those that were added, in order.
    pub(crate) targets: Vec<u32>,
    /// The number of their functions that are known now.
    pub(crate) functions: usize,
    /// Their delays.
    pub(crate) delay_ns: Vec<u64>,
    /// The numbers of those that were dropped.
    pub(crate) dropped: Vec<u32>,
    /// The number of functions that those had.
    pub(crate) dropped_functions: usize,
    pub(crate) at_ns: Nanos,
}

/// An answer without its envelope.
pub fn value(answer: &impl Serialize) -> Result<Value, RequestError> {
    serde_json::to_value(answer).map_err(|error| RequestError::request(format!("cannot answer: {error}")))
}

/// The whole line.
pub fn to_line(id: &Value, answer: Result<Value, RequestError>) -> String {
    let answer = match answer {
        Ok(answer) => json!({ "id": id, "ok": answer }),
        Err(error) => json!({ "id": id, "error": error }),
    };
    // A person may be typing requests at a terminal.
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
