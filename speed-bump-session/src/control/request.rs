//! Requests: lines of JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RequestError;
use crate::{
    policy::Dose,
    session::controls::Controls,
    targets::{Target, TargetIndex, source::TargetSource},
    units::Nanos,
};

/// The requests.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// Prepares a session: makes plans, and attaches nothing.
    Prepare(Box<PrepareAsk>),
    /// Starts the prepared session.
    Start {},
    /// Describes the session.
    About {},
    /// Sets doses.
    Set(SetAsk),
    /// Adds and drops targets.
    ChangeTargets {
        /// Lines of targets, as in a targets file.
        #[serde(default)]
        add: Vec<String>,
        /// The targets to drop.
        #[serde(default)]
        drop: Vec<Drop>,
    },
    /// Reads the counters.
    Snapshot {
        /// Whether the answer has the names of functions.
        #[serde(default = "yes")]
        names: bool,
    },
    /// Reads the events since the last request.
    Events {
        /// How long to wait for the first event, in ms.
        #[serde(default)]
        wait_ms: u64,
    },
    /// Reads the report so far.
    Report {},
    /// Runs a sweep. The code that runs it reads the fields.
    Sweep(serde_json::Map<String, Value>),
    /// Ends the session or the sweep.
    Stop {},
}

fn yes() -> bool {
    true
}

impl Ask {
    fn checked(self) -> Result<Self, RequestError> {
        match self {
            Self::Set(SetAsk { doses: None, lines: None }) => {
                Err(RequestError::request("nothing to set: give `doses`, `lines` or both"))
            }
            ask => Ok(ask),
        }
    }
}

/// A request to prepare a session. Absent fields have the same defaults as on the command line, but the
/// default delay is 0.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareAsk {
    /// The PIDs of the processes.
    pub pids: Vec<i32>,
    /// Lines of targets, as in a targets file.
    pub targets: Vec<String>,
    /// The delay of each trigger, for lines that give none.
    #[serde(default)]
    pub delay_ns: u64,
    /// The frequency, for lines that give none.
    #[serde(default = "one")]
    pub frequency: u64,
    /// The engine.
    #[serde(default)]
    pub engine: Option<String>,
    /// The entry source.
    #[serde(default)]
    pub entry: Option<String>,
    /// Whether we may load the helper into the process.
    #[serde(default = "yes")]
    pub inject: bool,
    /// How long loading the helper may take.
    #[serde(default)]
    pub inject_timeout_ns: Option<u64>,
    /// How long the session only counts calls before it delays the first one.
    #[serde(default)]
    pub start_after_ns: u64,
    /// The time after which the session ends by itself.
    #[serde(default)]
    pub duration_ns: Option<u64>,
    /// Whether the session covers descendants.
    #[serde(default = "yes")]
    pub children: bool,
    /// Whether the session times calls.
    #[serde(default)]
    pub times: bool,
    /// Whether a target that selects nothing is an error.
    #[serde(default)]
    pub strict: bool,
    /// Whether the user accepts upstream's kernel module.
    #[serde(default)]
    pub accept_upstream_module: bool,
}

fn one() -> u64 {
    1
}

/// The doses to set. The request must have at least one of the two fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAsk {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doses: Option<Vec<DoseAsk>>,
    /// Patterns and options, as in a targets file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<String>>,
}

/// Names the targets to drop.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Drop {
    /// The target with this number.
    Target(u32),
    /// All targets with this text: their pattern, their pattern and caller, or their id equals it.
    Named(String),
}

/// A dose for a target or a function.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DoseAsk {
    #[serde(default)]
    target: Option<u32>,
    #[serde(default)]
    function: Option<u32>,
    delay_ns: u64,
    #[serde(default = "one")]
    frequency: u64,
}

/// What a dose applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All functions of a target.
    Target(TargetIndex),
    /// The function with this number in the session.
    Function(u32),
}

/// Reads a line. Returns the request's `id`, if it has one, and the request.
pub fn read(line: &[u8]) -> (Value, Result<Ask, RequestError>) {
    let mut object = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return (Value::Null, Err(RequestError::request("a request is a JSON object"))),
        Err(error) => {
            return (Value::Null, Err(RequestError::request(format!("not a line of JSON: {error}"))));
        }
    };
    let id = object.remove("id").unwrap_or_default();
    let ask = serde_json::from_value(Value::Object(object));
    let ask = ask.map_err(|error| RequestError::request(format!("not a request: {error}")));
    (id, ask.and_then(Ask::checked))
}

/// Reads lines of targets for a running session.
pub(crate) fn lines(lines: &[String], controls: &Controls) -> Result<Vec<Target>, RequestError> {
    let parsed = TargetSource::lines("targets", lines).read(true)?;
    let targets = controls.decide_kinds(parsed)?;
    if !targets.exclusions().is_empty() {
        return Err(RequestError::request("what is excluded cannot change while a session runs"));
    }
    Ok(targets.iter().map(|(_, target)| target.clone()).collect())
}

fn delay(ns: u64) -> Result<Nanos, RequestError> {
    Some(Nanos(ns)).filter(|delay| *delay <= Nanos::MAX_DELAY).ok_or_else(|| {
        RequestError::request(format!("a delay of {ns} ns is more than the longest, {}", Nanos::MAX_DELAY.0))
    })
}

/// Returns the dose if it is within the limits.
///
/// # Errors
/// The delay is too long, or the frequency 0.
pub fn dose(delay_ns: u64, frequency: u64) -> Result<Dose, RequestError> {
    if frequency == 0 {
        return Err(RequestError::request("a frequency of 0: 1 delays every call, 2 every second one"));
    }
    Ok(Dose { delay: delay(delay_ns)?, frequency })
}

impl DoseAsk {
    pub(crate) fn subject(&self) -> Result<Subject, RequestError> {
        match (self.target, self.function) {
            (Some(target), None) => Ok(Subject::Target(TargetIndex(target))),
            (None, Some(function)) => Ok(Subject::Function(function)),
            _ => Err(RequestError::request("a dose is for a `target` or for a `function`, by its number")),
        }
    }

    pub(crate) fn dose(&self) -> Result<Dose, RequestError> {
        dose(self.delay_ns, self.frequency)
    }
}

impl SetAsk {
    /// A request with one line.
    pub(crate) fn line(line: String) -> Self {
        Self { doses: None, lines: Some(vec![line]) }
    }

    /// The doses for targets and functions by number.
    pub fn doses(&self) -> &[DoseAsk] {
        self.doses.as_deref().unwrap_or_default()
    }

    /// The lines with doses.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn refused(line: &str) -> (Value, String) {
        let (id, ask) = read(line.as_bytes());
        (id, ask.unwrap_err().message)
    }

    #[test]
    fn what_is_no_request_is_named_and_keeps_its_id() {
        assert_eq!(refused("[1]"), (Value::Null, "a request is a JSON object".to_owned()));
        assert!(refused("{").1.starts_with("not a line of JSON: "));
        let (id, message) = refused(r#"{"id":"a","do":"dance"}"#);
        assert_eq!(id, Value::from("a"));
        assert!(message.contains("dance") && message.contains("snapshot"), "{message}");
        assert!(refused(r#"{"do":"start","now":1}"#).1.contains("now"));
        assert!(refused(r#"{"do":"set","doses":[{"delay":1}]}"#).1.contains("`delay`"));
    }

    #[test]
    fn doses_are_of_one_thing_and_within_bounds() {
        let dose = |text: &str| {
            let line = format!(r#"{{"do":"set","doses":[{text}]}}"#);
            match read(line.as_bytes()).1.unwrap() {
                Ask::Set(ask) => {
                    ask.doses()[0].subject().and_then(|subject| Ok((subject, ask.doses()[0].dose()?)))
                }
                other => unreachable!("{other:?}"),
            }
        };
        let (subject, every) = dose(r#"{"target":2,"delay_ns":5,"frequency":3}"#).unwrap();
        assert_eq!(
            (subject, every),
            (Subject::Target(TargetIndex(2)), Dose { delay: Nanos(5), frequency: 3 })
        );
        assert_eq!(dose(r#"{"function":7,"delay_ns":0}"#).unwrap().0, Subject::Function(7));
        for wrong in [
            r#"{"delay_ns":5}"#,
            r#"{"target":1,"function":1,"delay_ns":5}"#,
            r#"{"target":1,"delay_ns":10000000001}"#,
            r#"{"target":1,"delay_ns":5,"frequency":0}"#,
        ] {
            assert!(dose(wrong).is_err(), "{wrong}");
        }
    }
}
