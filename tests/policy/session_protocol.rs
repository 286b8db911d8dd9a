//! A session's answers at its socket: the protocol of `agent`, bounded, for tools of its own version.

#![allow(clippy::unwrap_used)]

use std::{
    fs::{self, DirBuilder},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::Shutdown,
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::Command,
    sync::mpsc::{Receiver, channel},
    thread,
};

use serde_json::{Value, json};
use speed_bump_testing::{Attached, Fixture, Service, session::obstacle, skip, tool, wait::PATIENCE};

fn socket(session: i32) -> PathBuf {
    format!("/run/speed-bump-ebpf/sessions/{session}.sock").into()
}

/// A connection to a session.
struct Connected {
    lines: BufReader<UnixStream>,
    greeting: Value,
}

impl Connected {
    fn to(session: i32) -> Self {
        let stream = UnixStream::connect(socket(session)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connected = Self { lines: BufReader::new(stream), greeting: Value::Null };
        connected.greeting = connected.next().unwrap();
        connected
    }

    /// The next line; none at the end.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn say(&mut self, bytes: &[u8]) {
        self.lines.get_mut().write_all(bytes).unwrap();
    }
}

/// The answer to a request, by a connection of its own.
fn answer(session: i32, request: &str) -> Value {
    let mut connected = Connected::to(session);
    connected.say(format!("{request}\n").as_bytes());
    connected.next().unwrap()
}

#[test]
fn the_socket_of_a_session_speaks_as_the_agent_does() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    let mut service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    let targets = "native:*/service:hot\nnative:*/libwork.so:work_*\n";
    let session = Attached::start(service.pid(), targets, &["--delay", "0"]).unwrap();
    let pid = session.pid();
    let greeting = Connected::to(pid).greeting;
    assert_eq!(greeting, json!({"schema": "speed-bump/agent/1", "version": env!("CARGO_PKG_VERSION")}));

    let ok = |request: &Value| {
        let answer = answer(pid, &request.to_string());
        assert!(answer["ok"].is_object(), "{request}: {answer}");
        answer
    };
    let about = ok(&json!({"id": [7], "do": "about"}));
    assert_eq!((&about["id"], &about["ok"]["pids"]), (&json!([7]), &json!([service.pid()])));
    assert_eq!(about["ok"]["targets"][0]["pattern"], "native:*/service:hot");
    let set = ok(&json!({"do": "set", "doses": [{"target": 0, "delay_ns": 20_000}],
        "lines": ["native:*:work_hot delay=7us"]}));
    assert!(set["ok"]["at_ns"].is_u64(), "{set}");
    let line = json!({"targets": 0, "functions": 1, "delay_ns": [7_000]});
    assert_eq!(set["ok"]["lines"], json!([line]));
    service.ask("call hot 10").unwrap();
    service.ask("call work_hot 10").unwrap();

    for (request, kind, word) in [
        ("nonsense", "request", "JSON"),
        (r#"{"do":"dance"}"#, "request", "dance"),
        (r#"{"do":"about","more":1}"#, "request", "more"),
        (r#"{"do":"stop"}"#, "state", "who started the session"),
        (r#"{"do":"prepare","pids":[1],"targets":[]}"#, "state", "who started the session"),
        (r#"{"do":"events"}"#, "state", "who started the session"),
        (r#"{"do":"set","doses":[{"target":9,"delay_ns":1}]}"#, "usage", "no target 9"),
        (r#"{"do":"set","doses":[{"target":0,"delay_ns":20000000000}]}"#, "request", "longest"),
        (r#"{"do":"change-targets","drop":["nothing"]}"#, "usage", "no target of the session matches"),
    ] {
        let error = &answer(pid, request)["error"];
        assert_eq!(error["kind"], kind, "{request}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{request}: {error}");
    }
    // More than any request, in one line.
    let mut connected = Connected::to(pid);
    let sent = (0..80).try_for_each(|_| connected.lines.get_mut().write_all(&vec![b' '; 64 << 10]));
    let said = connected.lines.fill_buf().map(<[u8]>::to_owned);
    assert!(sent.is_err() || said.is_err() || String::from_utf8_lossy(&said.unwrap()).contains("bytes"));

    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (10, 10));
    assert_eq!(ended.target(0)["functions"][0]["requested_ns"], 10 * 20_000);
    let functions = ended.target(1)["functions"].as_array().unwrap();
    let work_hot = functions.iter().find(|function| function["name"] == "work_hot").unwrap();
    assert_eq!(work_hot["requested_ns"], 10 * 7_000);
}

/// An impostor at the socket of a session.
struct Impostor {
    path: PathBuf,
    /// The lines that each client has sent.
    told: Receiver<Vec<u8>>,
}

impl Impostor {
    /// Listens, and sends this to each client.
    fn start(says: &'static str) -> Self {
        let path = socket(std::process::id().cast_signed());
        DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let (tell, told) = channel();
        let listen = move || {
            for stream in listener.incoming() {
                let (mut stream, mut said) = (stream.unwrap(), Vec::new());
                // It may have gone.
                let _ = stream.write_all(says.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
                let _ = stream.read_to_end(&mut said);
                if tell.send(said).is_err() {
                    return;
                }
            }
        };
        thread::spawn(listen);
        Self { path, told }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[test]
fn a_session_of_another_version_is_named_and_told_nothing() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let pid = std::process::id().to_string();
    let newer = "{\"schema\":\"speed-bump/agent/2\",\"version\":\"9.8.7\"}\n";
    for (says, words) in [
        (newer, ["of version 9.8.7 (speed-bump/agent/2)", env!("CARGO_PKG_VERSION")]),
        ("", ["does not answer as it should", "another version"]),
        ("{\"error\":\"this is no request\"}\n", ["does not answer as it should", "another version"]),
    ] {
        let impostor = Impostor::start(says);
        let run = tool::run(&["set", "--session", &pid, "*:f", "delay=1us"], PATIENCE).unwrap();
        assert_eq!(run.status.code(), Some(4), "{says:?}: {}", run.stderr);
        assert!(words.iter().all(|word| run.stderr.contains(word)), "{says:?}: {}", run.stderr);
        let told = impostor.told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(String::from_utf8_lossy(&told), "", "{says:?}");
    }
}
