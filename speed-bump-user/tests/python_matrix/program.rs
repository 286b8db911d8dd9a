//! `tests/fixtures/matrix`: a program that calls functions of every shape, and knows how often.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::Value;
use speed_bump_testing::{Service, session::Ended};

use crate::interpreters::Interpreter;

/// Calls that were started, by file and qualified name.
pub(crate) type Calls = BTreeMap<(String, String), u64>;

/// The running program.
pub(crate) struct Program {
    service: Service,
}

impl Program {
    /// Starts it on an interpreter.
    pub(crate) fn start(interpreter: &Interpreter) -> Result<Self> {
        let service = Service::start(interpreter.command().env_remove("PYTHONPERFSUPPORT"))?;
        let is = |switch: &str| service.ready()[switch] == true;
        let (said, wanted) = ((is("jit"), is("gil")), interpreter.switches());
        ensure!(said == wanted, "JIT and GIL are {said:?}, not {wanted:?}");
        Ok(Self { service })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.service.pid()
    }

    /// Its cases, by name.
    pub(crate) fn cases(&mut self) -> Result<Vec<String>> {
        Ok(self.service.ask("cases")?.iter().map(|case| text(case, "name")).collect())
    }

    pub(crate) fn ask(&mut self, command: &str) -> Result<()> {
        self.service.ask(command).map(drop)
    }

    /// What it called since `reset`, and in which cases.
    pub(crate) fn report(&mut self) -> Result<Report> {
        let mut report = Report::default();
        for event in self.service.ask("report")? {
            let function = (text(&event, "file"), text(&event, "name"));
            report.cases.entry(function.clone()).or_default().push(text(&event, "case"));
            *report.calls.entry(function).or_default() += event["calls"].as_u64().unwrap_or_default();
        }
        Ok(report)
    }

    /// What the interpreter counted since `reference`, and the names that it cannot count.
    pub(crate) fn reference(&mut self) -> Result<(Calls, Vec<String>)> {
        let (mut calls, mut unsure) = (Calls::new(), Vec::new());
        for event in self.service.ask("reference-report")? {
            let name = text(&event, "name");
            match event["event"].as_str() {
                Some("unsure") => unsure.push(name),
                _ => *calls.entry((text(&event, "file"), name)).or_default() += count(&event),
            }
        }
        Ok((calls, unsure))
    }

    pub(crate) fn quit(self) -> Result<()> {
        let status = self.service.quit()?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}

/// What the program called.
#[derive(Default)]
pub(crate) struct Report {
    /// How often.
    pub(crate) calls: Calls,
    cases: BTreeMap<(String, String), Vec<String>>,
}

impl Report {
    /// How another count differs from the program's own: a line for each function. Empty when it does not.
    pub(crate) fn differences(&self, counted: &Calls) -> Vec<String> {
        let mut lines = Vec::new();
        for function in self.calls.keys().chain(counted.keys().filter(|f| !self.calls.contains_key(*f))) {
            let of = |calls: &Calls| calls.get(function).copied().unwrap_or(0);
            if of(&self.calls) != of(counted) {
                let (file, name) = function;
                let file = file.rsplit('/').next().unwrap_or(file);
                lines.push(format!(
                    "{name} in {file}: {} calls, {} counted (cases: {})",
                    of(&self.calls),
                    of(counted),
                    self.cases.get(function).map_or_else(|| "none".to_owned(), |cases| cases.join(", ")),
                ));
            }
        }
        lines
    }
}

/// The calls of a session's report, without functions that were never called.
pub(crate) fn counted(ended: &Ended) -> Calls {
    let mut calls = Calls::new();
    for target in ended.report["targets"].as_array().into_iter().flatten() {
        for function in target["functions"].as_array().into_iter().flatten() {
            if count(function) > 0 {
                *calls.entry((text(function, "file"), text(function, "name"))).or_default() +=
                    count(function);
            }
        }
    }
    calls
}

fn text(event: &Value, field: &str) -> String {
    event[field].as_str().unwrap_or_default().to_owned()
}

fn count(event: &Value) -> u64 {
    event["calls"].as_u64().unwrap_or_default()
}
