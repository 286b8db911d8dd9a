//! Reads a request to prepare.

use std::time::Duration;

use super::fields;
use crate::{
    control::{
        RequestError,
        request::{PrepareAsk, dose},
    },
    prepare::Request,
    targets::source::TargetSource,
    units::Pid,
};

/// The processes, and the request for the session.
pub(super) fn read(ask: &PrepareAsk) -> Result<(Vec<Pid>, Request), RequestError> {
    let pids = fields::pids(&ask.pids)?;
    let defaults = Request::new(TargetSource::lines("targets", &ask.targets));
    let request = Request {
        default: dose(ask.delay_ns, ask.frequency)?,
        engine: fields::choice(ask.engine.as_deref())?,
        entry: fields::choice(ask.entry.as_deref())?,
        inject: ask.inject,
        inject_timeout: ask.inject_timeout_ns.map_or(Request::INJECT_TIMEOUT, Duration::from_nanos),
        start_after: Duration::from_nanos(ask.start_after_ns),
        duration: ask.duration_ns.filter(|ns| *ns > 0).map(Duration::from_nanos),
        children: ask.children,
        times: ask.times,
        strict: ask.strict,
        accept_upstream_module: ask.accept_upstream_module,
        ..defaults
    };
    Ok((pids, request))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        control::request::{self, Ask},
        engine::{EngineChoice, EngineKind},
    };

    #[test]
    fn absent_fields_have_the_defaults_of_the_command_line() {
        let prepare = |line: &str| match request::read(line.as_bytes()).1.unwrap() {
            Ask::Prepare(ask) => read(&ask),
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
