//! Serves the numbers over HTTP/1.1 (RFC 9112): GET of /metrics, and nothing else.
//!
//! Anybody may connect, so connections are few and short, and none can block others: the oldest is closed to
//! make room for a new one.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    runtime::Builder,
    sync::Notify,
    task::{AbortHandle, LocalSet},
    time::{sleep, timeout},
};

/// Connections at a time.
const CONNECTIONS: usize = 16;
/// How long a connection may last. Prometheus opens a new one.
const LONGEST: Duration = Duration::from_secs(15);
/// Size of the read buffer, and so the limit for a request.
const MAX_BYTES: usize = 16 << 10;
/// Pause after a connection could not be accepted, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(200);

/// A thread that serves. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves the present text.
    pub(super) fn start(address: SocketAddr, text: Arc<Mutex<String>>) -> io::Result<Self> {
        Self::with(address, text, LONGEST)
    }

    fn with(address: SocketAddr, text: Arc<Mutex<String>>, longest: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let end = Arc::new(Notify::new());
        let ends = Arc::clone(&end);
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let thread = std::thread::Builder::new().name("prometheus".to_owned()).spawn(move || {
            let served = async {
                tokio::select! {
                    () = serve(listener, text, longest) => {}
                    () = ends.notified() => {}
                }
            };
            LocalSet::new().block_on(&runtime, served);
        })?;
        Ok(Self { address, end, thread: Some(thread) })
    }

    /// The address it listens at.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, text: Arc<Mutex<String>>, longest: Duration) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let text = Arc::clone(&text);
                let connection = tokio::task::spawn_local(async move {
                    // A failed connection needs no report: the client notices it.
                    let _ = timeout(longest, connection(stream, text)).await;
                });
                open.push_back(connection.abort_handle());
            }
            Err(error) => {
                tracing::debug!("no connection could be taken: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, text: Arc<Mutex<String>>) -> Result<(), hyper::Error> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &text);
        async move { Ok::<_, Infallible>(answer) }
    });
    http1::Builder::new()
        // A connection that stays open would take a place from others.
        .keep_alive(false)
        .max_buf_size(MAX_BYTES)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

fn answer(method: &Method, path: &str, text: &Mutex<String>) -> Response<Full<Bytes>> {
    let (status, body) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, text.lock().unwrap_or_else(PoisonError::into_inner).clone())
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "the numbers are at /metrics\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "GET /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
    };

    use super::*;

    fn server() -> Server {
        Server::start("127.0.0.1:0".parse().unwrap(), text()).unwrap()
    }

    fn text() -> Arc<Mutex<String>> {
        Arc::new(Mutex::new("a_number 1\n".to_owned()))
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn numbers_are_served_and_nothing_else() {
        let server = server();
        let get = |path: &str| {
            ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        };
        let answer = get("/metrics");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na_number 1\n"),
            "{answer}"
        );
        assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
        assert!(get("/../etc/passwd").starts_with("HTTP/1.1 404 "));
        let post = ask(
            &server,
            "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        );
        assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
        assert!(ask(&server, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
        let mut stream = TcpStream::connect(server.address()).unwrap();
        // The server may close the connection in the middle.
        let _ = stream.write_all(long.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }

    #[test]
    fn silent_connections_do_not_block_others() {
        // These connections would stay open for an hour.
        let hour = Duration::from_secs(3_600);
        let server = Server::with("127.0.0.1:0".parse().unwrap(), text(), hour).unwrap();
        let silent: Vec<TcpStream> =
            (0..3 * CONNECTIONS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("a_number 1"), "{answer}");
        // The server ends although connections are open.
        drop(server);
        drop(silent);
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let server = server();
        let again = Server::start(server.address(), Arc::default());
        assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    }
}
