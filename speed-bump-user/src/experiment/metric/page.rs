//! A page of a service, fetched from the address that the user gave and from no other: redirects are not
//! followed, and no proxy of the environment is asked.

use std::{io, time::Duration};

use crate::printable::{at_most, printable};

/// Longer than this no page is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pages are some hundred kB at most.
const MOST_BYTES: u64 = 16 << 20;
/// Of the address that a redirect names, so many characters are told.
const LONGEST_ADDRESS: usize = 200;

/// Fetches pages. Connections are kept for the next one.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Pages(ureq::Agent);

impl Pages {
    /// Fetches nothing yet.
    pub(in crate::experiment) fn new() -> Self {
        let config = ureq::Agent::config_builder();
        Self(config.timeout_global(Some(PATIENCE)).max_redirects(0).proxy(None).build().into())
    }

    /// Asks for a page, and returns its text.
    ///
    /// # Errors
    /// It does not come in time, is larger than 16 MiB, or the answer is an error or a redirect.
    pub(in crate::experiment) fn text(&self, url: &str) -> io::Result<String> {
        let body = self.answer(url)?.into_body();
        let text = body.into_with_config().limit(MOST_BYTES).lossy_utf8(true).read_to_string();
        text.map_err(|error| failed(url, &error))
    }

    /// Asks for a page, and does not read it.
    ///
    /// # Errors
    /// No answer comes in time, or it is an error or a redirect.
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
    io::Error::other(format!("{url}: {error}"))
}

#[cfg(test)]
pub(in crate::experiment) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Answers so many requests with a page, on the address that is returned.
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

    #[test]
    fn a_page_that_is_cut_off_is_an_error() {
        let url = serve("200 OK", "Content-Length: 1000\r\n", "a 1\n", 1);
        let error = Pages::new().text(&url).unwrap_err().to_string();
        assert!(error.starts_with(&url), "{error}");
    }
}
