//! Requests on sockets, counted by the tool and by the client that made them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    time::{Duration, Instant},
};

use speed_bump_linux::{
    kernel::{KernelFacts, KernelVersion},
    process::Process,
};
use speed_bump_testing::{
    Service, places,
    pythons::{self, Form, PythonBuild},
    session::obstacle,
    skip,
    wait::wait_for,
};
use speed_bump_units::units::{Nanos, Pid};
use speed_bump_user::internals::sockets::{Reading, Requests, Sockets};

/// Why requests cannot be counted on this machine; `None` if they can.
fn obstacle_here() -> Option<&'static str> {
    let is_old = KernelFacts::read().version < KernelVersion::new(6, 3);
    obstacle().or_else(|| is_old.then_some("before Linux 6.3 no tracepoint tells of receives and sends"))
}

/// The interpreter of the services, or why none can be attached to here.
fn python() -> Result<&'static PythonBuild, String> {
    if let Some(why) = obstacle_here() {
        return Err(why.to_owned());
    }
    let is_usable = |python: &&PythonBuild| python.form != Form::Container && python.minor() >= (3, 8);
    let found = pythons::pythons().iter().find(is_usable);
    found.ok_or_else(|| "this machine has no Python 3.8 or newer".to_owned())
}

fn start(python: &PythonBuild, arguments: &[&str]) -> Service {
    let script = places::fixtures().join("sockets.py");
    Service::start(python.command(&script).args(arguments)).unwrap()
}

fn open(pid: i32) -> Process {
    Process::open(Pid::new(pid).unwrap()).unwrap()
}

fn attach(service: &Service) -> Sockets {
    Sockets::attach(&[open(service.pid())]).unwrap().unwrap()
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection to a service.
struct Client(BufReader<Box<dyn Stream>>);

impl Client {
    fn connect(service: &Service) -> Self {
        let at = &service.ready()["at"];
        let stream: Box<dyn Stream> = match (at.as_u64(), at.as_str()) {
            (Some(port), _) => Box::new(tcp(u16::try_from(port).unwrap())),
            (_, Some(name)) => Box::new(match name.strip_prefix('\0') {
                Some(name) => {
                    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
                }
                None => UnixStream::connect(name).unwrap(),
            }),
            _ => unreachable!("the service says where it listens"),
        };
        Self(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for this many lines.
    fn receive(&mut self, lines: usize) {
        for _ in 0..lines {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the service has hung up");
        }
    }

    fn ask(&mut self, command: &str) {
        self.send(&format!("{command}\n"));
        self.receive(1);
    }

    fn get(&mut self) {
        self.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the service has hung up");
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        self.0.read_exact(&mut vec![0; length]).unwrap();
    }
}

/// Connects to a port of this machine, over IPv4 or IPv6.
fn tcp(port: u16) -> TcpStream {
    let stream =
        TcpStream::connect(("127.0.0.1", port)).or_else(|_| TcpStream::connect(("::1", port))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// What was counted since a reading, once the service has sent this many times: the client has its answer
/// before the service's send has returned, and only then is it counted.
fn after(sockets: &Sockets, earlier: &Reading, sends: u64) -> Requests {
    let holds = |reading: &Reading| {
        let requests = reading.since(earlier);
        requests.answered + requests.more_sends >= sends
    };
    read_until(sockets, "all sends", holds).since(earlier)
}

/// Reads until a reading satisfies the condition.
fn read_until(sockets: &Sockets, what: &str, holds: impl Fn(&Reading) -> bool) -> Reading {
    wait_for(what, || Some(sockets.read()).filter(&holds))
        .unwrap_or_else(|error| panic!("{error:#}: {:?}", sockets.read()))
}

/// Checks that nothing but answered requests was counted.
fn assert_plain(requests: &Requests) {
    let Requests { more_receives, more_sends, abandoned, in_flight, no_room, .. } = *requests;
    assert_eq!([more_receives, more_sends, abandoned, in_flight, no_room], [0; 5], "{requests:?}");
}

#[test]
fn requests_are_counted_exactly_whatever_the_socket() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    for kind in ["tcp4", "tcp6", "unix", "abstract"] {
        if kind == "tcp6" && TcpListener::bind("[::1]:0").is_err() {
            speed_bump_testing::skip_case!(kind, "this machine has no IPv6");
            continue;
        }
        speed_bump_testing::case_ran!();
        let service = start(python, &[kind]);
        // A connection that is older than the attach, and has been used.
        let mut early = Client::connect(&service);
        early.ask("echo");
        let sockets = attach(&service);
        let before = sockets.read();
        (0..7).for_each(|_| early.ask("echo"));
        let mut late = Client::connect(&service);
        (0..5).for_each(|_| late.ask("echo"));
        let requests = after(&sockets, &before, 12);
        assert_eq!((requests.answered, requests.connections), (12, 2), "{kind}: {requests:?}");
        assert_plain(&requests);
        let (mean, p99) = (requests.mean().unwrap(), requests.quantile(0.99).unwrap());
        assert!(mean > Nanos(0) && p99 > Nanos(0), "{kind}: {requests:?}");
    }
}

#[test]
fn a_latency_is_what_the_service_took() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    let service = start(python, &["tcp4"]);
    let sockets = attach(&service);
    let before = sockets.read();
    let mut client = Client::connect(&service);
    let sleep = Duration::from_millis(20);
    let began = Instant::now();
    (0..5).for_each(|_| client.ask("sleep 20"));
    after(&sockets, &before, 5);
    let waited = Nanos::from(began.elapsed());
    let requests = sockets.read().since(&before);
    assert_eq!(requests.answered, 5);
    let (mean, least) = (requests.mean().unwrap(), requests.quantile(0.0).unwrap());
    assert!(mean >= Nanos::from(sleep), "{requests:?}");
    // All requests began and ended between the two readings.
    assert!(requests.latency <= waited, "{requests:?} {waited}");
    assert!(least.0 as f64 >= sleep.as_nanos() as f64 * 0.96, "{least}");
    // One request came after the other, with little time between them.
    let in_flight = requests.mean_in_flight();
    assert!(in_flight > 0.0 && in_flight <= 1.0, "{in_flight}");
}

#[test]
fn pieces_of_requests_and_of_answers_are_told_apart() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    let service = start(python, &["tcp4"]);
    let sockets = attach(&service);
    let mut client = Client::connect(&service);
    let mut last = sockets.read();
    let mut next = |sockets: &Sockets, sends| {
        let now = read_until(sockets, "all sends", |reading| {
            let requests = reading.since(&last);
            requests.answered + requests.more_sends >= sends
        });
        let requests = now.since(&last);
        last = now;
        (requests.answered, requests.more_receives, requests.more_sends)
    };

    client.send("stream 4\n");
    client.receive(4);
    assert_eq!(next(&sockets, 4), (1, 0, 3), "streaming");

    client.send("echo\necho\necho\n");
    client.receive(3);
    assert_eq!(next(&sockets, 3), (1, 0, 2), "pipelining that is received at once");

    client.send("ec");
    read_until(&sockets, "half of a request", |reading| reading.in_flight() == 1);
    client.send("ho\n");
    client.receive(1);
    assert_eq!(next(&sockets, 1), (1, 1, 0), "a request in two pieces");

    client.ask("file");
    assert_eq!(next(&sockets, 1), (1, 0, 0), "sendfile(2)");
}

#[test]
fn answers_that_say_they_failed_are_told_apart() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    for kind in ["tcp4", "unix"] {
        let service = start(python, &[kind]);
        let sockets = attach(&service);
        let mut client = Client::connect(&service);
        for call in ["sendto", "write", "writev", "sendmsg"] {
            for (status, is_failure) in
                [("200", 0), ("404", 0), ("500", 1), ("503", 1), ("408", 1), ("429", 1), ("304", 0)]
            {
                let before = sockets.read();
                client.ask(&format!("status {status} {call}"));
                let requests = after(&sockets, &before, 1);
                assert_eq!(requests.answered, 1, "{kind} {call} {status}");
                // The failure is counted just after the answer is sent.
                let failed =
                    || Some(sockets.read().since(&before).failed).filter(|found| *found == is_failure);
                wait_for(&format!("{kind} {call} {status}"), failed).unwrap();
            }
            let before = sockets.read();
            client.ask("echo");
            assert_eq!(after(&sockets, &before, 1).failed, 0, "{kind} {call}: no HTTP");
        }
    }
}

#[test]
fn requests_without_an_answer_are_in_flight_until_the_connection_is_closed() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    let service = start(python, &["tcp4"]);
    let sockets = attach(&service);
    let before = sockets.read();
    let mut client = Client::connect(&service);
    client.send("quiet\n");
    let waiting = read_until(&sockets, "a request", |reading| reading.in_flight() == 1).since(&before);
    assert_eq!((waiting.answered, waiting.abandoned, waiting.mean()), (0, 0, None));
    drop(client);
    let closed = read_until(&sockets, "the end of it", |reading| reading.in_flight() == 0).since(&before);
    assert_eq!((closed.answered, closed.abandoned, closed.connections), (0, 1, 1));
    assert!(closed.abandoned_after > Nanos(0) && closed.abandoned_after <= closed.over, "{closed:?}");
    // The next sockets get the memory of closed ones, and must not inherit their state.
    for _ in 0..20 {
        Client::connect(&service).ask("echo");
    }
    let all = after(&sockets, &before, 20);
    assert_eq!((all.answered, all.connections, all.more_receives), (20, 21, 0), "{all:?}");
}

#[test]
fn outgoing_connections_and_other_processes_are_not_counted() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    let (service, other) = (start(python, &["tcp4"]), start(python, &["tcp4"]));
    let port = other.ready()["at"].as_u64().unwrap();
    let sockets = attach(&service);
    let before = sockets.read();
    let mut client = Client::connect(&service);
    client.ask(&format!("ask {port} 50"));
    let mut of_other = Client::connect(&other);
    (0..50).for_each(|_| of_other.ask("echo"));
    let requests = after(&sockets, &before, 1);
    assert_eq!((requests.answered, requests.connections), (1, 1), "{requests:?}");
    assert_plain(&requests);
    // The other service answers the requests, and receives all of them on one connection.
    let sockets = attach(&other);
    let before = sockets.read();
    client.ask(&format!("ask {port} 50"));
    let requests = after(&sockets, &before, 50);
    assert_eq!((requests.answered, requests.connections), (50, 1), "{requests:?}");
    assert_plain(&requests);
}

#[test]
fn workers_come_and_go() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    let service = start(python, &["tcp4", "3"]);
    let workers = service.ready()["workers"].as_array().unwrap();
    let pids: Vec<i32> = workers.iter().map(|pid| pid.as_i64().unwrap().try_into().unwrap()).collect();
    let master = service.pid();
    // The master listens, and never accepts.
    let mut sockets = attach(&service);
    let ask = |count| {
        for _ in 0..count {
            let mut client = Client::connect(&service);
            client.ask("echo");
            client.ask("echo");
        }
    };
    ask(5);
    let before = sockets.read();
    assert_eq!(before.answered(), 0);
    let all: Vec<Process> = pids.iter().copied().chain([master]).map(open).collect();
    sockets.set_processes(&all).unwrap();
    ask(20);
    assert_eq!(after(&sockets, &before, 40).answered, 40);
    sockets.set_processes(&[open(master)]).unwrap();
    ask(5);
    assert_eq!(sockets.read().answered(), 40);
    let listening = sockets.listening().to_string();
    assert_eq!(listening, format!("TCP port {}", service.ready()["at"]));
}

#[test]
fn servers_of_pythons_library_are_counted_exactly() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skip!("{why}"),
    };
    let service = start(python, &["http"]);
    let sockets = attach(&service);
    let before = sockets.read();
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&service)).collect();
    for _ in 0..25 {
        clients.iter_mut().for_each(Client::get);
    }
    let requests = after(&sockets, &before, 200);
    // It sends the page after the headers.
    assert_eq!((requests.answered, requests.more_sends), (100, 100), "{requests:?}");
    assert_eq!((requests.connections, requests.more_receives), (4, 0), "{requests:?}");

    let service = start(python, &["asyncio"]);
    let sockets = attach(&service);
    let before = sockets.read();
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&service)).collect();
    // The service's one thread has all requests at once.
    for _ in 0..10 {
        clients.iter_mut().for_each(|client| client.send("line\n"));
        clients.iter_mut().for_each(|client| client.receive(1));
    }
    let requests = after(&sockets, &before, 40);
    assert_eq!((requests.answered, requests.connections), (40, 4), "{requests:?}");
    assert_plain(&requests);
    assert!(requests.mean().unwrap() >= Nanos(1_000_000), "{requests:?}");
}

#[test]
fn who_listens_on_nothing_has_no_requests() {
    if let Some(why) = obstacle_here() {
        return skip!("{why}");
    }
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let sockets = Sockets::attach(&[open(child.id().cast_signed())]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(sockets.unwrap().is_none());
}
