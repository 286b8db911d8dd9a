//! The tool driven as a program drives it: `agent`, requests and answers in JSON.

use std::{
    io::Write as _,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::{
    Lines, tool,
    wait::{PATIENCE, deadline, wait},
};

/// A running agent. Dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines,
    first: Value,
    asked: u64,
}

impl Agent {
    /// Starts one, and reads how it introduces itself.
    pub fn start() -> Result<Self> {
        Self::start_as(&mut Command::new(tool::path()?))
    }

    /// The same with this command of the tool.
    pub fn start_as(tool: &mut Command) -> Result<Self> {
        let mut child = tool.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let lines = Lines::read(child.stdout.take().context("the agent has no standard output")?);
        let mut agent = Self { child, input, lines, first: Value::Null, asked: 0 };
        agent.first = agent.next()?;
        Ok(agent)
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// How it introduced itself.
    pub fn first(&self) -> &Value {
        &self.first
    }

    /// Sends a request, which gets an id, and returns the answer: what is `ok`. An error is an error.
    pub fn ask(&mut self, request: &Value) -> Result<Value> {
        let answer = self.answer(request)?;
        match answer.get("ok") {
            Some(ok) => Ok(ok.clone()),
            None => bail!("{request}: {}", answer["error"]),
        }
    }

    /// The same, and wants an error.
    pub fn error(&mut self, request: &Value) -> Result<Value> {
        let answer = self.answer(request)?;
        answer.get("error").cloned().with_context(|| format!("{request}: no error: {answer}"))
    }

    fn answer(&mut self, request: &Value) -> Result<Value> {
        self.asked += 1;
        let mut request = request.clone();
        request["id"] = json!(self.asked);
        let input = self.input.as_mut().context("its input was closed")?;
        writeln!(input, "{request}").and_then(|()| input.flush()).context("the agent does not read")?;
        let answer = self.next()?;
        if answer["id"] != self.asked {
            bail!("{answer} does not answer request {}", self.asked);
        }
        Ok(answer)
    }

    fn next(&mut self) -> Result<Value> {
        let line = self.lines.line_by(deadline(PATIENCE)).context("the agent does not answer")?;
        serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))
    }

    /// Closes its input, and waits for its end.
    pub fn close(mut self) -> Result<ExitStatus> {
        self.input = None;
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        wait(&mut self.child, PATIENCE)?.context("the agent does not end")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Both fail only when the child has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
