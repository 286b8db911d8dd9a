//! Requests, as lines of JSON.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{error::AgentError, sweep::SweepAsk};
use crate::{
    policy::Dose,
    prepare::{PrepareError, Request},
    session::controls::Controls,
    targets::{Target, TargetIndex, source::TargetSource},
    units::{Nanos, Pid},
};

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Ask {
    Prepare(Box<PrepareAsk>),
    Start {},
    Set {
        doses: Vec<DoseAsk>,
    },
    ChangeTargets {
        /// Lines as a targets file has them.
        #[serde(default)]
        add: Vec<String>,
        /// By their numbers.
        #[serde(default)]
        drop: Vec<u32>,
    },
    Snapshot {
        #[serde(default = "yes")]
        names: bool,
    },
    Events {
        #[serde(default)]
        wait_ms: u64,
    },
    Report {},
    Sweep(Box<SweepAsk>),
    Stop {},
}

fn yes() -> bool {
    true
}

/// What is to be prepared; what is absent is as on the command line, but for the delay: 0.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrepareAsk {
    pids: Vec<i32>,
    targets: Vec<String>,
    #[serde(default)]
    delay_ns: u64,
    #[serde(default = "one")]
    frequency: u64,
    #[serde(default)]
    engine: Option<String>,
    #[serde(default)]
    entry: Option<String>,
    #[serde(default = "yes")]
    inject: bool,
    #[serde(default)]
    inject_timeout_ns: Option<u64>,
    #[serde(default)]
    start_after_ns: u64,
    #[serde(default)]
    duration_ns: Option<u64>,
    #[serde(default = "yes")]
    children: bool,
    #[serde(default)]
    times: bool,
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    accept_upstream_module: bool,
}

fn one() -> u64 {
    1
}

/// A dose for a target or a function.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DoseAsk {
    #[serde(default)]
    target: Option<u32>,
    #[serde(default)]
    function: Option<u32>,
    delay_ns: u64,
    #[serde(default = "one")]
    frequency: u64,
}

/// Whose dose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Target(TargetIndex),
    /// By its number in the session.
    Function(u32),
}

/// Reads a line: the request's `id`, whatever that is, and what is asked.
pub(super) fn read(line: &[u8]) -> (Value, Result<Ask, AgentError>) {
    let mut object = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return (Value::Null, Err(AgentError::request("a request is a JSON object"))),
        Err(error) => return (Value::Null, Err(AgentError::request(format!("not a line of JSON: {error}")))),
    };
    let id = object.remove("id").unwrap_or_default();
    let ask = serde_json::from_value(Value::Object(object));
    (id, ask.map_err(|error| AgentError::request(format!("not a request: {error}"))))
}

/// The targets that these lines are in a session.
pub(super) fn lines(lines: &[String], controls: &Controls) -> Result<Vec<Target>, AgentError> {
    let parsed = TargetSource::lines("targets", lines).read(true).map_err(PrepareError::from)?;
    let targets = controls.decide_kinds(parsed)?;
    if !targets.exclusions().is_empty() {
        return Err(AgentError::request("what is excluded cannot change while a session runs"));
    }
    Ok(targets.iter().map(|(_, target)| target.clone()).collect())
}

fn delay(ns: u64) -> Result<Nanos, AgentError> {
    Some(Nanos(ns)).filter(|delay| *delay <= Nanos::MAX_DELAY).ok_or_else(|| {
        AgentError::request(format!("a delay of {ns} ns is more than the longest, {}", Nanos::MAX_DELAY.0))
    })
}

fn dose(delay_ns: u64, frequency: u64) -> Result<Dose, AgentError> {
    if frequency == 0 {
        return Err(AgentError::request("a frequency of 0: 1 delays every call, 2 every second one"));
    }
    Ok(Dose { delay: delay(delay_ns)?, frequency })
}

impl DoseAsk {
    pub(super) fn of(&self) -> Result<Of, AgentError> {
        match (self.target, self.function) {
            (Some(target), None) => Ok(Of::Target(TargetIndex(target))),
            (None, Some(function)) => Ok(Of::Function(function)),
            _ => Err(AgentError::request("a dose is for a `target` or for a `function`, by its number")),
        }
    }

    pub(super) fn dose(&self) -> Result<Dose, AgentError> {
        dose(self.delay_ns, self.frequency)
    }
}

impl PrepareAsk {
    /// The processes, and what is asked of them.
    pub(super) fn read(&self) -> Result<(Vec<Pid>, Request), AgentError> {
        let pid = |number: &i32| {
            Pid::new(*number).ok_or_else(|| AgentError::request(format!("{number} is no process id")))
        };
        let pids = self.pids.iter().map(pid).collect::<Result<Vec<_>, _>>()?;
        if pids.is_empty() {
            return Err(AgentError::request("`pids` is empty: name the processes"));
        }
        let chosen = |name: &Option<String>| name.clone().unwrap_or_else(|| "auto".to_owned());
        let defaults = Request::new(TargetSource::lines("targets", &self.targets));
        let request = Request {
            default: dose(self.delay_ns, self.frequency)?,
            engine: chosen(&self.engine).parse().map_err(AgentError::request)?,
            entry: chosen(&self.entry).parse().map_err(AgentError::request)?,
            inject: self.inject,
            inject_timeout: self.inject_timeout_ns.map_or(Request::INJECT_TIMEOUT, Duration::from_nanos),
            start_after: Duration::from_nanos(self.start_after_ns),
            duration: self.duration_ns.filter(|ns| *ns > 0).map(Duration::from_nanos),
            children: self.children,
            times: self.times,
            strict: self.strict,
            accept_upstream_module: self.accept_upstream_module,
            ..defaults
        };
        Ok((pids, request))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::engine::{EngineChoice, EngineKind};

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
                Ask::Set { doses } => doses[0].of().and_then(|of| Ok((of, doses[0].dose()?))),
                other => unreachable!("{other:?}"),
            }
        };
        let (of, every) = dose(r#"{"target":2,"delay_ns":5,"frequency":3}"#).unwrap();
        assert_eq!((of, every), (Of::Target(TargetIndex(2)), Dose { delay: Nanos(5), frequency: 3 }));
        assert_eq!(dose(r#"{"function":7,"delay_ns":0}"#).unwrap().0, Of::Function(7));
        for wrong in [
            r#"{"delay_ns":5}"#,
            r#"{"target":1,"function":1,"delay_ns":5}"#,
            r#"{"target":1,"delay_ns":10000000001}"#,
            r#"{"target":1,"delay_ns":5,"frequency":0}"#,
        ] {
            assert!(dose(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_absent_is_as_on_the_command_line() {
        let prepare = |line: &str| match read(line.as_bytes()).1.unwrap() {
            Ask::Prepare(ask) => ask.read(),
            other => unreachable!("{other:?}"),
        };
        let (pids, request) = prepare(r#"{"do":"prepare","pids":[7],"targets":["a:b","c:d"]}"#).unwrap();
        assert_eq!(pids, [Pid::new(7).unwrap()]);
        assert_eq!(request, Request::new(TargetSource::lines("targets", &["a:b", "c:d"])));
        let signal = prepare(r#"{"do":"prepare","pids":[7],"targets":[],"engine":"signal"}"#).unwrap().1;
        assert_eq!(signal.engine, EngineChoice::Only(EngineKind::Signal));
        for wrong in [r#""pids":[]"#, r#""pids":[0]"#, r#""pids":[1],"engine":"x""#] {
            assert!(prepare(&format!(r#"{{"do":"prepare","targets":[],{wrong}}}"#)).is_err(), "{wrong}");
        }
    }
}
