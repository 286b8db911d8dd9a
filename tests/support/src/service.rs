//! A running fixture: start it, talk to it, end it.
//!
//! A fixture prints one JSON object a line. Its first is `{"event":"ready","pid":…}`; it reads a command a
//! line and answers each with any number of objects and then `{"event":"done","command":…}`, or with
//! `{"event":"error",…}`. The fixtures' own headers list the commands.

use std::{
    fs,
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use crate::{
    Lines,
    wait::{PATIENCE, deadline, wait},
};

/// A running fixture. Dropping it kills its process, and the fixture's own children follow it.
#[derive(Debug)]
pub struct Service {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines,
    ready: Value,
}

impl Service {
    /// Starts a fixture and waits until it is ready.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the child has no standard output")?;
        let mut service = Self { child, input, lines: Lines::read(output), ready: Value::Null };
        let first = service.next_event(deadline(PATIENCE)).context("waiting for `ready`")?;
        if first["event"] != "ready" {
            bail!("{command:?} began with {first} instead of its `ready`");
        }
        service.ready = first;
        Ok(service)
    }

    /// The process id, as this process's PID namespace numbers it.
    pub fn pid(&self) -> i32 {
        // PIDs stay below 2^22 (PID_MAX_LIMIT).
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }

    /// The first object that the fixture printed.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// Sends a command and returns the objects of its answer, without the closing one.
    pub fn ask(&mut self, command: &str) -> Result<Vec<Value>> {
        let input = self.input.as_mut().context("the fixture's input is closed")?;
        writeln!(input, "{command}")
            .and_then(|()| input.flush())
            .with_context(|| format!("cannot send `{command}`"))?;
        let deadline = deadline(PATIENCE);
        let mut answer = Vec::new();
        loop {
            let event = self.next_event(deadline).with_context(|| format!("waiting for `{command}`"))?;
            match event["event"].as_str() {
                Some("done") => return Ok(answer),
                Some("error") => bail!("the fixture refused `{command}`: {}", event["message"]),
                _ => answer.push(event),
            }
        }
    }

    /// The report's entry for one function of the service's own process.
    pub fn function(&mut self, name: &str) -> Result<FunctionTimes> {
        let pid = self.ready["pid"].clone();
        let report = self.ask("report")?;
        report
            .iter()
            .find(|event| event["event"] == "function" && event["name"] == name && event["pid"] == pid)
            .and_then(|event| {
                Some(FunctionTimes {
                    calls: event["calls"].as_u64()?,
                    least_ns: event["min_ns"].as_u64()?,
                    total_ns: event["total_ns"].as_u64()?,
                })
            })
            .ok_or_else(|| anyhow!("the fixture's report has no `{name}`: {report:?}"))
    }

    /// Removes its perf map, or that of an earlier process of the same id.
    pub fn remove_perf_map(&self) {
        // Most have none.
        let _ = fs::remove_file(format!("/tmp/perf-{}.map", self.pid()));
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the fixture to quit and waits until it has.
    pub fn quit(mut self) -> Result<ExitStatus> {
        self.ask("quit")?;
        self.wait(PATIENCE)
    }

    /// Waits until the process has ended.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        wait(&mut self.child, patience)?.context("the fixture did not end")
    }

    fn next_event(&mut self, deadline: Instant) -> Result<Value> {
        match self.lines.line_by(deadline) {
            Ok(line) => serde_json::from_str(&line).with_context(|| format!("not JSON: {line}")),
            Err(RecvTimeoutError::Timeout) => bail!("the fixture says nothing for {PATIENCE:?} or longer"),
            Err(RecvTimeoutError::Disconnected) => {
                let end = match wait(&mut self.child, Duration::from_secs(5))? {
                    Some(status) => match status.signal() {
                        Some(signal) => format!("ended by signal {signal}"),
                        None => format!("ended: {status}"),
                    },
                    None => "closed its output and runs on".to_owned(),
                };
                bail!("the fixture {end}")
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail only when the child has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.remove_perf_map();
    }
}

/// What a fixture measured of one of its functions since the last `reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionTimes {
    /// Finished calls.
    pub calls: u64,
    /// The least time of the last calls, in nanoseconds, clock readings included; 0 without calls.
    pub least_ns: u64,
    /// The time of all calls, in nanoseconds, clock readings included.
    pub total_ns: u64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Fixture, places, wait::wait_until};

    fn names(report: &[Value]) -> Vec<&str> {
        report.iter().filter(|e| e["event"] == "function").filter_map(|e| e["name"].as_str()).collect()
    }

    #[test]
    fn the_c_service_counts_exactly_and_answers() {
        let fixture = Fixture::service().unwrap();
        let mut service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
        assert_eq!(service.ready()["pid"], service.pid());
        service.ask("call hot 1000").unwrap();
        service.ask("call work_cold 3").unwrap();
        assert_eq!(service.function("hot").unwrap().calls, 1000);
        assert_eq!(service.function("work_cold").unwrap().calls, 3);
        service.ask("reset").unwrap();
        assert_eq!(service.function("hot").unwrap().calls, 0);
        let error = service.ask("call nothing 1").unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        let report = service.ask("report").unwrap();
        for name in ["hot", "cold", "outer", "leaf", "aliased", "work_hot", "work_aliased"] {
            assert!(names(&report).contains(&name), "{name} in {report:?}");
        }
        assert!(report.iter().any(|e| e["event"] == "semaphore" && e["value"] == 0), "{report:?}");
        assert!(service.quit().unwrap().success());
    }

    #[test]
    fn the_c_services_threads_work_and_pause() {
        let fixture = Fixture::service().unwrap();
        let mut service = Service::start(Command::new(fixture.program()).arg("4")).unwrap();
        wait_until("the workers work", || Ok(service.function("cold")?.calls > 0)).unwrap();
        service.ask("pause").unwrap();
        let counts = (service.function("hot").unwrap(), service.function("work_hot").unwrap());
        assert_eq!((service.function("hot").unwrap(), service.function("work_hot").unwrap()), counts);
        service.ask("resume").unwrap();
        wait_until("they work again", || Ok(service.function("hot")?.calls > counts.0.calls)).unwrap();
    }

    #[test]
    fn the_c_services_children_report_beside_it() {
        let fixture = Fixture::service().unwrap();
        let mut service = Service::start(Command::new(fixture.program()).arg("1")).unwrap();
        let mut children = Vec::new();
        for how in ["fork", "fork-exec", "vfork-exec", "posix_spawn"] {
            let answer = service.ask(how).unwrap();
            assert_eq!(answer[0]["event"], "child", "{answer:?}");
            children.push(answer[0]["pid"].clone());
        }
        let report = service.ask("report").unwrap();
        for child in &children {
            let hot = |e: &&Value| e["pid"] == *child && e["name"] == "hot";
            assert!(report.iter().any(|e| hot(&e)), "{child} in {report:?}");
        }
        // The process itself is replaced, and keeps its PID.
        let answer = service.ask("exec").unwrap();
        assert_eq!(answer[0]["event"], "ready", "{answer:?}");
        assert_eq!(answer[0]["pid"], service.pid());
        service.ask("call hot 1").unwrap();
        assert!(service.quit().unwrap().success());
    }

    #[test]
    fn the_python_service_runs_on_every_interpreter() {
        let script = places::fixtures().join("service.py");
        for python in crate::pythons() {
            let mut service = Service::start(python.command(&script).arg("0")).unwrap();
            service.ask("call hot 100").unwrap();
            service.ask("call Worker.method 7").unwrap();
            assert_eq!(service.function("hot").unwrap().calls, 100, "{python}");
            assert_eq!(service.function("Worker.method").unwrap().calls, 7, "{python}");
            assert_eq!(service.ready()["pid"], service.pid(), "{python}");
            assert_eq!(service.ask("activate").is_ok(), python.trampolines, "{python}");
            let child = service.ask("fork").unwrap()[0]["pid"].clone();
            let report = service.ask("report").unwrap();
            assert!(report.iter().any(|e| e["pid"] == child && e["name"] == "hot"), "{python}: {report:?}");
            assert!(service.quit().unwrap().success(), "{python}");
        }
    }
}
