//! Lines without a kind: the files that the target sees decide between native and Python, wherever the line
//! comes from. Files of the same path that the tool sees, or does not see, have no effect.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use speed_bump_testing::{
    Agent, Attached, Fixture, PythonBuild, Service, fixture, places, pythons,
    pythons::Form,
    session::obstacle,
    skip, tool,
    wait::{PATIENCE, wait_until},
};

/// Why no process can have mounts of its own here, if so.
fn no_mounts() -> Option<String> {
    if let Some(why) = obstacle() {
        return Some(why.to_owned());
    }
    match Command::new("unshare").args(["-m", "sh", "-ec", "mount -t tmpfs t /tmp"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("unshare: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Some(format!("no unshare (util-linux): {error}")),
    }
}

/// Runs a script with mounts of its own; it ends in a service.
fn start_with_mounts(script: &str) -> Service {
    Service::start(Command::new("unshare").args(["-m", "sh", "-ec", script])).unwrap()
}

/// A folder that is empty outside, and where the service lies inside.
struct Inside {
    folder: PathBuf,
    fixture: Fixture,
}

impl Inside {
    fn new() -> Self {
        let fixture = Fixture::service().unwrap();
        let folder = fixture.folder().join("inside");
        fs::create_dir(&folder).unwrap();
        Self { folder, fixture }
    }

    fn script(&self) -> String {
        let (program, library) = (self.fixture.program().display(), self.fixture.library());
        let (folder, library) = (self.folder.display(), library.display());
        format!("mount -t tmpfs t {folder}; cp {program} {library} {folder}; exec {folder}/service 0")
    }

    /// A line without a kind.
    fn line(&self, name: &str) -> String {
        format!("{}/service:{name}", self.folder.display())
    }
}

/// Adds a target by `set --add`, which has to succeed.
fn add(session: &Attached, line: &str) {
    let pid = session.pid().to_string();
    let run = tool::run(&["set", "--session", &pid, line, "--add"], PATIENCE).unwrap();
    assert!(run.status.success(), "{line}: {}", run.stderr);
}

fn call(service: &mut Service, names: &[&str]) {
    for name in names {
        service.ask(&format!("call {name} 10")).unwrap();
    }
}

fn kinds(report: &Value) -> Vec<(&str, u64)> {
    let targets = report["targets"].as_array().unwrap();
    targets.iter().map(|of| (of["kind"].as_str().unwrap(), of["calls"].as_u64().unwrap())).collect()
}

/// Attaches by an agent, adds a target, and returns the report after ten calls of each.
fn by_agent(service: &mut Service, first: &str, added: &str, names: &[&str]) -> Value {
    let mut agent = Agent::start().unwrap();
    agent.ask(&json!({"do": "prepare", "pids": [service.pid()], "targets": [first]})).unwrap();
    agent.ask(&json!({"do": "start"})).unwrap();
    agent.ask(&json!({"do": "change-targets", "add": [added]})).unwrap();
    // Python functions follow as soon as the helper has looked.
    wait_until("all functions are known", || {
        let seen = agent.ask(&json!({"do": "snapshot"}))?;
        Ok(names.iter().all(|name| seen["functions"].to_string().contains(&format!("\"{name}\""))))
    })
    .unwrap();
    call(service, names);
    agent.ask(&json!({"do": "stop"})).unwrap()["report"].clone()
}

#[test]
fn a_program_that_only_the_target_has_is_native() {
    if let Some(why) = no_mounts() {
        return skip!("{why}");
    }
    let inside = Inside::new();
    let mut service = start_with_mounts(&inside.script());
    let mut session = Attached::start(service.pid(), &format!("{}\n", inside.line("hot")), &[]).unwrap();
    add(&session, &inside.line("cold"));
    call(&mut service, &["hot", "cold"]);
    let lines = ["hot", "cold", "outer"].map(|name| inside.line(name) + "\n");
    session.write_targets(&lines.concat()).unwrap();
    session.signal(Signal::USR1).unwrap();
    session.wait_for("1 target added, 0 dropped").unwrap();
    call(&mut service, &["outer"]);
    let ended = session.stop().unwrap();
    let native = ("native", 10);
    assert_eq!(kinds(&ended.report), [native, native, native], "{}", ended.run.stderr);

    let report = by_agent(&mut service, &inside.line("hot"), &inside.line("cold"), &["hot", "cold"]);
    assert_eq!(kinds(&report), [native, native]);
}

/// A Python that runs outside, and a script without `.py`. Outside, the script's path is that of a program.
struct Script {
    path: PathBuf,
    fixture: Fixture,
}

impl Script {
    fn new() -> Self {
        let fixture = Fixture::service().unwrap();
        let path = fixture.folder().join("application");
        fixture::copy_program(fixture.program(), &path).unwrap();
        Self { path, fixture }
    }

    fn start(&self, python: &PythonBuild) -> Service {
        let (script, path) = (places::fixtures().join("service.py"), self.path.display());
        let interpreter = python.interpreter();
        let (script, program) = (script.display(), interpreter.get_program().to_str().unwrap());
        start_with_mounts(&format!("mount --bind {script} {path}; exec {program} {path} 0"))
    }

    fn line(&self, name: &str) -> String {
        format!("{}:{name}", self.path.display())
    }
}

fn a_python() -> Option<&'static PythonBuild> {
    pythons().iter().rfind(|python| python.form == Form::Direct)
}

#[test]
fn a_script_in_the_target_is_python_though_its_path_is_a_program_outside() {
    if let Some(why) = no_mounts() {
        return skip!("{why}");
    }
    let Some(python) = a_python() else { return skip!("this machine has no Python 3.8 or newer") };
    let script = Script::new();
    let mut service = script.start(python);
    let flags = ["--entry", "helper", "-vv"];
    let session = Attached::start(service.pid(), &format!("{}\n", script.line("hot")), &flags).unwrap();
    add(&session, &script.line("cold"));
    session.wait_for(": cold is covered").unwrap();
    call(&mut service, &["hot", "cold"]);
    let ended = session.stop().unwrap();
    let python = ("py", 10);
    assert_eq!(kinds(&ended.report), [python, python], "{}", ended.run.stderr);

    let report = by_agent(&mut service, &script.line("hot"), &script.line("cold"), &["hot", "cold"]);
    assert_eq!(kinds(&report), [python, python]);
}

#[test]
fn a_program_that_only_a_child_has_is_native() {
    if let Some(why) = no_mounts() {
        return skip!("{why}");
    }
    let inside = Inside::new();
    // The shell stays, with the common mounts.
    let script = format!("unshare -m sh -ec '{}'; true", inside.script());
    let mut service = Service::start(Command::new("sh").args(["-ec", &script])).unwrap();
    let session = Attached::start(service.pid(), &format!("{}\n", inside.line("hot")), &[]).unwrap();
    add(&session, &inside.line("cold"));
    call(&mut service, &["hot", "cold"]);
    let ended = session.stop().unwrap();
    assert_eq!(kinds(&ended.report), [("native", 10), ("native", 10)], "{}", ended.run.stderr);
}

#[test]
fn a_child_that_comes_later_with_another_file_is_told_of() {
    if let Some(why) = no_mounts() {
        return skip!("{why}");
    }
    let inside = Inside::new();
    let script = format!("read line; unshare -m sh -ec '{}'; true", inside.script());
    let mut shell = Command::new("sh");
    let shell = shell.args(["-ec", &script]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = Killed(shell.spawn().unwrap());
    let targets = format!("{}\nnative:*/libc.so*:waitpid\n", inside.line("hot"));
    let session = Attached::start(shell.0.id().cast_signed(), &targets, &[]).unwrap();
    shell.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let said = format!("{}/service is an ELF file there", inside.folder.display());
    session.wait_for(&said).unwrap();
    // What is added now asks the child too.
    let pid = session.pid().to_string();
    let run = tool::run(&["set", "--session", &pid, &inside.line("cold"), "--add"], PATIENCE).unwrap();
    assert!(run.status.success() && run.stdout.contains("1 function"), "{} {}", run.stdout, run.stderr);
    let ended = session.stop().unwrap();
    let kinds: Vec<&str> = kinds(&ended.report).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["py", "native", "native"], "{}", ended.run.stderr);
    let warnings = ended.report["warnings"].to_string();
    assert!(warnings.contains(&said) && warnings.contains("write py: or native:"), "{warnings}");
}

#[test]
fn processes_with_different_files_at_one_path_are_told_of() {
    if let Some(why) = no_mounts() {
        return skip!("{why}");
    }
    let Some(python) = a_python() else { return skip!("this machine has no Python 3.8 or newer") };
    let script = Script::new();
    let scripted = script.start(python);
    let program = script.path.display();
    let library = format!("LD_LIBRARY_PATH={}", script.fixture.folder().display());
    let mut native =
        Service::start(Command::new("sh").args(["-ec", &format!("{library} exec {program} 0")])).unwrap();
    let (line, other) = (script.line("hot"), native.pid().to_string());
    let session = Attached::start(scripted.pid(), &format!("{line}\n"), &["--pid", &other]).unwrap();
    call(&mut native, &["hot"]);
    let ended = session.stop().unwrap();
    assert_eq!(kinds(&ended.report), [("native", 10)], "{}", ended.run.stderr);
    let said = format!("process {}: {program} is no ELF file there, but `{line}`", scripted.pid());
    assert!(ended.report["warnings"].to_string().contains(&said), "{}", ended.run.stderr);

    let pids = ["--pid", &scripted.pid().to_string(), "--pid", &other];
    let list = tool::run(&[&["list"], &pids[..], &["-t", &line]].concat(), PATIENCE).unwrap();
    assert!(list.status.success() && list.stdout.contains(&said), "{} {}", list.stdout, list.stderr);
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only when it has been reaped already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
