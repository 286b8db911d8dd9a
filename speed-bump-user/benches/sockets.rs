//! Measures how much longer a system call on a socket takes while requests are counted: `cargo xtask bench
//! sockets`.
//!
//! Programs that do nothing but receive and send single bytes, each with both ends of its connection: two of
//! four system calls are those of the service. Rounds without programs, with empty ones at the same
//! tracepoints and with the tool's alternate, so that drift of the machine affects all; the result is the
//! median over the rounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "empty/program.rs"]
mod empty_program;

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use speed_bump_linux::{
    process::Process,
    sys::bpf::{self, ProgramKind},
};
use speed_bump_units::units::{Nanos, Pid};
use speed_bump_user::internals::sockets::Sockets;

const ROUNDS: usize = 15;
/// Turns of a round: a request and an answer each, on TCP and on a unix socket.
const TURNS: u32 = 20_000;
/// System calls of a turn: send and receive, there and back.
const CALLS: f64 = 4.0;
/// The argument that makes this program the measured one.
const AS_PROGRAM: &str = "--as-program";

fn main() {
    if std::env::args().any(|argument| argument == AS_PROGRAM) {
        return serve();
    }
    let mut service = Program::start();
    let mut other = Program::start();
    let process = || Process::open(Pid::new(service.child.id().cast_signed()).unwrap()).unwrap();
    let (first, mut reads) = (process(), Vec::new());
    println!("{ROUNDS} rounds of {TURNS} turns; ns a system call, medians");
    let mut rows: [[Vec<[f64; 3]>; 2]; 2] = Default::default();
    let mut attaching = Vec::new();
    for round in 0..=ROUNDS {
        let bare = [service.run(), other.run()];
        let links = attach_empty();
        let empty = [service.run(), other.run()];
        drop(links);
        let began = Instant::now();
        let sockets = Sockets::attach(std::slice::from_ref(&first)).unwrap().unwrap();
        attaching.push(Nanos::from(began.elapsed()).0);
        let before = sockets.read();
        let counted = [service.run(), other.run()];
        let began = Instant::now();
        let requests = sockets.read().since(&before);
        reads.push(Nanos::from(began.elapsed()).0);
        assert_eq!(requests.answered, 2 * u64::from(TURNS));
        // The first round warms up.
        if round > 0 {
            for (who, row) in rows.iter_mut().enumerate() {
                for (kind, of) in row.iter_mut().enumerate() {
                    of.push([bare, empty, counted].map(|round| round[who][kind]));
                }
            }
        }
    }
    println!("{:<24} {:>10} {:>12} {:>12} {:>8}", "", "without", "empty, more", "ours, more", "ratio");
    for (who, row) in ["the service", "another process"].iter().zip(&rows) {
        for (kind, rounds) in ["TCP", "unix"].iter().zip(row) {
            let of = |value: &dyn Fn(&[f64; 3]) -> f64| median(rounds.iter().map(value).collect());
            println!(
                "{:<24} {:>10.0} {:>12.0} {:>12.0} {:>8.3}",
                format!("{who}, {kind}"),
                of(&|[bare, ..]| *bare),
                of(&|[bare, empty, _]| empty - bare),
                of(&|[bare, _, counted]| counted - bare),
                of(&|[bare, _, counted]| counted / bare),
            );
        }
    }
    attaching.sort_unstable();
    reads.sort_unstable();
    println!(
        "attaching takes {}, a reading {} (medians)",
        Nanos(attaching[ROUNDS / 2]),
        Nanos(reads[ROUNDS / 2])
    );
    drop((service, other.input.take()));
}

/// Attaches programs that do nothing (`r0 = 0; exit`) to the tracepoints of receives and sends.
fn attach_empty() -> [OwnedFd; 2] {
    [c"sock_recv_length", c"sock_send_length"].map(|tracepoint| {
        let (_btf, program) = empty_program::load(ProgramKind::RawTracepoint);
        bpf::open_raw_tracepoint(program.as_fd(), tracepoint).unwrap()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A program that is measured.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.arg(AS_PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Self { child, input, output };
        program.line();
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Runs a round: ns a system call, on TCP and on unix sockets.
    fn run(&mut self) -> [f64; 2] {
        self.input.as_mut().unwrap().write_all(b"run\n").unwrap();
        let line = self.line();
        let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap());
        [numbers.next().unwrap(), numbers.next().unwrap()]
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

/// Answers its own requests, as many as its input says.
fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let unix_listener = UnixListener::bind(&path).unwrap();
    let unix_client = UnixStream::connect(&path).unwrap();
    let (unix_server, _) = unix_listener.accept().unwrap();
    println!("ready");
    for line in std::io::stdin().lines() {
        drop(line.unwrap());
        println!("{} {}", turns(&client, &server), turns(&unix_client, &unix_server));
    }
}

/// ns a system call.
fn turns<S>(mut client: S, mut server: S) -> f64
where
    S: Read + Write,
{
    let mut byte = [0];
    let began = Instant::now();
    for _ in 0..TURNS {
        client.write_all(&byte).unwrap();
        server.read_exact(&mut byte).unwrap();
        server.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
    }
    Nanos::from(began.elapsed()).0 as f64 / f64::from(TURNS) / CALLS
}
