//! Pages that guards and metrics read: only at the given address, and only valid numbers.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use speed_bump_testing::{
    tool::{self, Run, Running},
    wait::PATIENCE,
};

use crate::planted::{Planted, UNIT, planted_tiny, planted_with};

/// Answers every request the same, until the test ends.
fn serve(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn page(text: &str) -> SocketAddr {
    serve(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len()))
}

/// An address without a listener.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn sweep(service: &Planted, proxy: SocketAddr, flags: &[&str]) -> Run {
    let mut command = Command::new(tool::path().unwrap());
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, format!("http://{proxy}"));
    }
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render"]);
    Running::start(command.args(flags)).unwrap().finish(4 * PATIENCE).unwrap()
}

#[test]
fn a_page_is_asked_at_its_own_address_and_nowhere_else() {
    let Some(service) = planted_tiny("shadow") else { return };
    let elsewhere = page("a_total 1\n");
    let redirect = serve(format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{elsewhere}/health\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    ));
    // A proxy that reports every service as healthy.
    for (asked, words) in [(nobody(), "refused"), (redirect, "redirects are not followed")] {
        let url = format!("http://{asked}/health");
        let guard = [&UNIT[..], &["--for", "60s", "--guard", &url]].concat();
        let run = sweep(&service, elsewhere, &guard);
        assert_eq!(run.status.code(), Some(6), "{}\n{}", run.stderr, run.stdout);
        assert!(run.stderr.contains(&url) && run.stderr.contains(words), "{}", run.stderr);
    }
}

#[test]
fn a_metric_that_is_no_number_is_told_of() {
    let Some(service) = planted_tiny("shadow") else { return };
    for value in ["NaN", "+Inf", "1e300"] {
        let url = format!("http://{}/metrics", page(&format!("a_total {value}\n")));
        let metric = format!("prometheus:{url}#a_total");
        let run = sweep(&service, nobody(), &["--for", "20s", "--metric", &metric]);
        assert_eq!(run.status.code(), Some(4), "{}\n{}", run.stderr, run.stdout);
        assert!(run.stderr.contains("for a_total, which nothing can be counted with"), "{}", run.stderr);
    }
}

/// Answers a request, knowing how many units there are, and were when the page turned.
type Answer = fn(TcpStream, u64, u64);

/// A page of how many units a service has done, by its log, until it is told to be another one.
struct Counter {
    address: SocketAddr,
    log: PathBuf,
    turned: Arc<OnceLock<u64>>,
}

impl Counter {
    /// `turned` answers from when it was told on.
    fn start(log: &Path, turned: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let counter =
            Self { address: listener.local_addr().unwrap(), log: log.to_owned(), turned: Arc::default() };
        let (log, then) = (counter.log.clone(), Arc::clone(&counter.turned));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, log, then) = (stream.unwrap(), log.clone(), Arc::clone(&then));
                thread::spawn(move || {
                    let _ = stream.read(&mut [0; 4_096]);
                    // The folder goes with the test.
                    let units = fs::metadata(log).map_or(0, |log| log.len());
                    match then.get() {
                        None => count(stream, units),
                        Some(then) => turned(stream, units, *then),
                    }
                });
            }
        });
        counter
    }

    fn turn(&self) {
        // A service that has just begun has no log yet.
        self.turned.set(fs::metadata(&self.log).map_or(0, |log| log.len())).unwrap();
    }
}

fn count(mut stream: TcpStream, units: u64) {
    let text = format!("a_total {units}\n");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    let _ = stream.write_all((head + &text).as_bytes());
}

/// Whatever happens to the page while functions are delayed, the sweep ends soon, without a verdict and with
/// the reason.
#[test]
fn a_metric_that_fails_in_a_sweep_leaves_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("units");
    let Some(service) = planted_with("logged", &[log.to_str().unwrap()]) else { return };
    let cases: [(Answer, &str); 4] = [
        // It never answers.
        (|stream, _, _| drop((stream, thread::sleep(4 * PATIENCE))), "did not answer, or not to the end"),
        // It answers late.
        (
            |stream, units, _| {
                thread::sleep(Duration::from_millis(1_200));
                count(stream, units);
            },
            "to be read, and a slice ",
        ),
        // It begins anew, and is soon beyond what it was.
        (|stream, units, then| count(stream, 5 * (units - then)), "jumped back, from "),
        // It stands still.
        (
            |stream, _, then| count(stream, then),
            "% as often as before: units fail, or their counter stands still",
        ),
    ];
    for (turned, words) in cases {
        let counter = Counter::start(&log, turned);
        let json = folder.path().join("out.json");
        let mut command = Command::new(tool::path().unwrap());
        command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render"]);
        let metric = format!("prometheus:http://{}/metrics#a_total", counter.address);
        command.args(["--closed-loop", "--metric", &metric, "--for", "40s", "--wait-load", "1s"]);
        let sweep = Running::start(command.args(["--json", json.to_str().unwrap()])).unwrap();
        sweep.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
        counter.turn();
        let run = sweep.finish(PATIENCE).unwrap();
        let shown = format!("{}\n{}", run.stdout, run.stderr);
        assert_eq!(run.status.code(), Some(8), "{shown}");
        assert!(run.stdout.starts_with("No verdict: ") && run.stderr.contains(words), "{words}\n{shown}");
        let found: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(found["validity"]["holds"], false, "{shown}");
        assert!(
            found["factors"].as_array().unwrap().iter().all(|of| of["verdict"] == "undecided"),
            "{shown}"
        );
        fs::remove_file(&json).unwrap();
    }
}

#[test]
fn a_counter_that_runs_backwards_is_not_taken_for_no_load() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("units");
    let Some(service) = planted_with("logged", &[log.to_str().unwrap()]) else { return };
    let counter = Counter::start(&log, |stream, units, _| count(stream, (1 << 40) - units));
    counter.turn();
    let metric = format!("prometheus:http://{}/metrics#a_total", counter.address);
    let run = sweep(&service, nobody(), &["--for", "20s", "--metric", &metric]);
    assert_eq!(run.status.code(), Some(2), "{}\n{}", run.stderr, run.stdout);
    assert!(run.stderr.contains("jumped back, from 1099"), "{}", run.stderr);
}
