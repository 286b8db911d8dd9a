//! Fetches a page of a service, only from the address that the user gave: it follows no redirect, and uses no
//! proxy from the environment.

use std::{io, time::Duration};

use crate::printable::{at_most, printable};

/// How long to wait for a page.
const PATIENCE: Duration = Duration::from_secs(2);
/// The largest page. Usual ones have some hundred kB.
const MAX_BYTES: u64 = 16 << 20;
/// Characters of a redirect's address in an error.
const LONGEST_ADDRESS: usize = 200;
/// Characters of the name of a compression in an error.
const LONGEST_CODING: usize = 40;

/// Fetches pages. Keeps connections for the next page.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Pages(ureq::Agent);

impl Pages {
    /// A client. Connects to nothing yet.
    pub(in crate::experiment) fn new() -> Self {
        let config = ureq::Agent::config_builder();
        let config = config.timeout_global(Some(PATIENCE)).max_redirects(0).proxy(None);
        Self(config.accept_encoding("identity").build().into())
    }

    /// Fetches the text of a page.
    ///
    /// # Errors
    /// It takes too long, is larger than 16 MiB or compressed, or the answer is an error or a redirect.
    pub(in crate::experiment) fn text(&self, url: &str) -> io::Result<String> {
        let answer = self.answer(url)?;
        if let Some(coding) = answer.headers().get("content-encoding").filter(|of| *of != "identity") {
            let coding = String::from_utf8_lossy(coding.as_bytes());
            return Err(io::Error::other(format!(
                "{url} answered with a page that is compressed ({}), although it was asked for one that is \
                 not: give the address of the service itself",
                at_most(printable(&coding), LONGEST_CODING)
            )));
        }
        let body = answer.into_body().into_with_config().limit(MAX_BYTES).read_to_vec();
        // Names and numbers are ASCII. Labels may have any encoding.
        body.map(|body| String::from_utf8_lossy(&body).into_owned()).map_err(|error| failed(url, &error))
    }

    /// Requests a page, and does not read its body.
    ///
    /// # Errors
    /// The answer takes too long, or is an error or a redirect.
    pub(in crate::experiment) fn check(&self, url: &str) -> io::Result<()> {
        self.answer(url).map(drop)
    }

    fn answer(&self, url: &str) -> io::Result<ureq::http::Response<ureq::Body>> {
        let answer = self.0.get(url).call().map_err(|error| failed(url, &error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let location = answer.headers().get("location").and_then(|to| to.to_str().ok());
        let to = location
            .map_or_else(String::new, |to| format!(" to {}", at_most(printable(to), LONGEST_ADDRESS)));
        Err(io::Error::other(format!(
            "{url} answered with status {status}{to}; redirects are not followed: give the address of the \
             page itself"
        )))
    }
}

fn failed(url: &str, error: &ureq::Error) -> io::Error {
    // Errors of the body are errors of the reader.
    let inner = match error {
        ureq::Error::Io(inner) => inner.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()),
        _ => None,
    };
    io::Error::other(match inner.unwrap_or(error) {
        ureq::Error::Timeout(_) => {
            format!("{url} did not answer, or not to the end, within {} s", PATIENCE.as_secs())
        }
        ureq::Error::BodyExceedsLimit(bytes) => {
            format!(
                "{url} answered with a page of more than {} MiB, too large for a page of numbers",
                bytes >> 20
            )
        }
        ureq::Error::StatusCode(status) => format!("{url} answered with status {status}"),
        ureq::Error::Protocol(error) => format!("{url} answered with what is not HTTP/1.1: {error}"),
        error => format!("{url}: {error}"),
    })
}

#[cfg(test)]
pub(in crate::experiment) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        thread,
    };

    use super::*;

    /// Answers this many requests with a page, and returns the address.
    pub(in crate::experiment) fn serve(
        status: &'static str,
        headers: &str,
        page: &'static str,
        times: usize,
    ) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n{page}");
        thread::spawn(move || {
            for _ in 0..times {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4_096]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        format!("http://{address}/metrics")
    }

    #[test]
    fn a_redirect_is_not_followed() {
        let other = serve("200 OK", "", "a 1\n", 2);
        let url = serve("302 Found", &format!("Location: {other}\r\nContent-Length: 0\r\n"), "", 2);
        for error in [Pages::new().text(&url).map(drop), Pages::new().check(&url)] {
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with(&url) && error.contains(&format!("302 to {other}")), "{error}");
        }
    }

    /// Answers one request with `answer`.
    fn answer_by(answer: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4_096]).unwrap();
            // The client closes the connection when it has enough.
            let _ = answer(stream);
        });
        format!("http://{address}/metrics")
    }

    #[test]
    fn pages_that_never_end_are_not_waited_for() {
        fn again(mut stream: TcpStream, head: &str, text: &[u8], pause: Duration) -> io::Result<()> {
            stream.write_all(head.as_bytes())?;
            loop {
                stream.write_all(text)?;
                thread::sleep(pause);
            }
        }
        const OK: &str = "HTTP/1.1 200 OK\r\n";
        const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        const SECOND: Duration = Duration::from_secs(1);
        let late = "did not answer, or not to the end, within 2 s";
        let mebibyte = vec![b'#'; 1 << 20];
        let cases = [
            (answer_by(|stream| again(stream, "", b"", SECOND)), late),
            (answer_by(|stream| again(stream, OK, b"a", SECOND)), late),
            (answer_by(|stream| again(stream, CHUNKS, b"1\r\n#\r\n", SECOND / 10)), late),
            (answer_by(|stream| again(stream, OK, b"a: b\r\n", Duration::ZERO)), "too many headers"),
            (answer_by(|stream| again(stream, "", b"HTTP/1.1 100 Continue\r\n\r\n", Duration::ZERO)), ""),
            (
                answer_by(move |stream| {
                    let head = format!("{OK}Content-Length: {}\r\n\r\n", 1 << 30);
                    again(stream, &head, &mebibyte, Duration::ZERO)
                }),
                "a page of more than 16 MiB",
            ),
        ];
        let ask = |(url, words): (String, &'static str)| {
            thread::spawn(move || {
                let error = Pages::new().text(&url).unwrap_err().to_string();
                assert!(error.starts_with(&url) && error.contains(words), "{error}");
            })
        };
        cases.map(ask).into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn invalid_answers_are_errors() {
        let asked = |answer: &'static [u8]| {
            let url = answer_by(move |mut stream| stream.write_all(answer));
            Pages::new().text(&url)
        };
        let error = asked(&[0xff; 4_096]).unwrap_err().to_string();
        assert!(error.contains("answered with what is not HTTP/1.1"), "{error}");
        let zipped = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\0";
        let error = asked(zipped).unwrap_err().to_string();
        assert!(error.contains("a page that is compressed (gzip)"), "{error}");
        // The encoding of a label does not matter.
        let latin = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\na{b=\"\xe4\"} 1\n";
        assert_eq!(asked(latin).unwrap(), "a{b=\"\u{fffd}\"} 1\n");
    }

    #[test]
    fn a_page_that_is_cut_off_is_an_error() {
        let url = serve("200 OK", "Content-Length: 1000\r\n", "a 1\n", 1);
        let error = Pages::new().text(&url).unwrap_err().to_string();
        assert!(error.starts_with(&url), "{error}");
    }
}
