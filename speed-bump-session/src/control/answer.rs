//! Answers, as lines of JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{RequestError, SCHEMA};
use crate::{printable::printable_json, units::Nanos};

/// The first line of whoever answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The protocol: [`SCHEMA`].
    pub(crate) schema: String,
    /// The version of the tool.
    pub(crate) version: String,
}

impl Greeting {
    /// That of this tool.
    pub fn own() -> Self {
        Self { schema: SCHEMA.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// An answer without the `id` of its request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// What was asked for.
    Ok(T),
    /// Why not.
    Error(RequestError),
}

/// An answer with its `id`, as it is read.
#[derive(Debug, Deserialize)]
pub struct Answered<T> {
    #[serde(flatten)]
    pub(crate) answer: Answer<T>,
}

/// What a session is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The processes that were named.
    pub pids: Vec<i32>,
    /// Its targets.
    pub targets: Vec<TargetAbout>,
}

/// A target, with the dose that it has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetAbout {
    /// Pattern as the user wrote it.
    pub pattern: String,
    /// The delay of each trigger.
    pub delay_ns: u64,
    /// Every how many calls.
    pub frequency: u64,
    /// Functions that are known now.
    pub functions: usize,
}

/// Doses hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DosesSet {
    pub(crate) at_ns: Nanos,
    /// What each of the lines has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<LineSet>,
}

/// What a line has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineSet {
    /// Targets that the line names: what becomes known later has the dose too.
    pub(crate) targets: usize,
    /// Functions that are known now.
    pub(crate) functions: usize,
    /// The delays that they have now.
    pub(crate) delay_ns: Vec<u64>,
}

/// Targets came and went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetsChanged {
    /// The numbers of those that came, in their order.
    pub(crate) targets: Vec<u32>,
    /// Functions of theirs that are known now.
    pub(crate) functions: usize,
    /// The delays that they have.
    pub(crate) delay_ns: Vec<u64>,
    /// The numbers of those that went.
    pub(crate) dropped: Vec<u32>,
    /// Functions that those had.
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
    // Somebody may be typing requests at a terminal.
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
