//! `tests/fixtures/matrix`: a program that calls functions of every shape, and knows how often.

use anyhow::{Result, ensure};
use serde_json::Value;
use speed_bump_testing::{
    Service,
    matrix::{Calls, Report},
    session::Ended,
};

use super::interpreters::Interpreter;

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
            report.add(function, text(&event, "case"), count(&event));
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
