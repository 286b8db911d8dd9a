//! Requests without a pause, over connections that stay open: if the server goes astray, an answer is late,
//! wrong or missing.

use std::{
    io::{BufReader, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

/// An answer that takes longer is missing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Clients that ask a server of `servers.py` without a pause.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<u64>>>,
}

impl Load {
    /// Starts `clients` of them.
    pub(super) fn start(port: u16, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..clients)
            .map(|_| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || ask_until(port, &stop))
            })
            .collect();
        Self { stop, clients }
    }

    /// Ends the clients. Returns how many requests were answered.
    ///
    /// # Errors
    /// The first request of any client that failed.
    pub(super) fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut answered = 0;
        for client in self.clients {
            match client.join() {
                Ok(count) => answered += count?,
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(answered)
    }
}

fn ask_until(port: u16, stop: &AtomicBool) -> Result<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect to the server")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let number = count % 1_000;
        write!(stream, "GET /{number} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let body = answer(&mut answers).with_context(|| format!("request {count} failed"))?;
        ensure!(
            body == (number * 2 + 1).to_string(),
            "request {count}: /{number} was answered with {body:?}"
        );
        count += 1;
    }
    Ok(count)
}

/// Reads one answer. Returns its body.
fn answer(stream: &mut impl std::io::BufRead) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    ensure!(line.starts_with("HTTP/1.1 200"), "the server answered {line:?}");
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(String::from_utf8(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_refused() {
        let read = |text: &str| answer(&mut text.as_bytes());
        let good = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 2\r\n\r\n42";
        assert_eq!(read(good).ok().as_deref(), Some("42"));
        assert!(read("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(read("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n42").is_err());
        assert!(read("").is_err());
    }
}
