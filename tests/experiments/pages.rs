//! Pages that guards and metrics read: only at the address that was given, and only numbers that can be
//! counted with.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    process::Command,
    thread,
};

use speed_bump_testing::{
    tool::{self, Run, Running},
    wait::PATIENCE,
};

use crate::planted::{Planted, UNIT, planted_tiny};

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

/// Where nobody listens.
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
    // A proxy that says of everybody that they are well.
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
