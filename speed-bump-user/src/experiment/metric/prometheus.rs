//! What a service exports for Prometheus: a counter of units, or a histogram of how long they take.

use std::{io, time::Duration};

use super::{Metric, Reading, exposition::Selector, level::Level};
use crate::{session::snapshot::Snapshot, sys::clock::now};

/// Longer than this no page is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pages are some hundred kB at most.
const MOST_BYTES: u64 = 16 << 20;

/// Something on a page: `http://HOST:PORT/metrics#name{label="value"}`.
#[derive(Clone, Debug)]
pub struct Source {
    agent: ureq::Agent,
    url: String,
    selector: Selector,
}

/// Why it is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No name.
    #[error("`{0}` names no metric: write URL#name, or URL#name{{label=\"value\"}}")]
    NoName(String),
    /// Not HTTP.
    #[error("`{0}` is not a URL that is read: it has to begin with http://")]
    NotHttp(String),
}

impl Source {
    /// Reads `URL#selector`.
    ///
    /// # Errors
    /// It is not of that form.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let (url, selector) = text.split_once('#').ok_or_else(|| SourceError::NoName(text.to_owned()))?;
        if !url.starts_with("http://") {
            return Err(SourceError::NotHttp(url.to_owned()));
        }
        let selector = Selector::parse(selector).ok_or_else(|| SourceError::NoName(text.to_owned()))?;
        Ok(Self { agent: agent(), url: url.to_owned(), selector })
    }

    /// The metric's name.
    pub fn name(&self) -> &str {
        &self.selector.name
    }

    /// The value now: of several that are selected, the sum.
    ///
    /// # Errors
    /// The page does not come, or has nothing of this name.
    pub fn value(&self) -> io::Result<f64> {
        let page = self.page()?;
        self.selector.sum(&page, "").ok_or_else(|| self.missing())
    }

    /// A counter's units; or of a histogram or summary in seconds, how many there were, and how long they
    /// took.
    fn reading(&self) -> io::Result<Reading> {
        let page = self.page()?;
        let of = |suffix| self.selector.sum(&page, suffix);
        if let Some(units) = of("") {
            return Ok(Reading { units, ..Reading::default() });
        }
        let units = of("_count").ok_or_else(|| self.missing())?;
        Ok(Reading { units, latency: of("_sum").map(|seconds| seconds * 1e9), ..Reading::default() })
    }

    fn page(&self) -> io::Result<String> {
        let fail = |error: ureq::Error| io::Error::other(format!("{}: {error}", self.url));
        let response = self.agent.get(&self.url).call().map_err(fail)?;
        response.into_body().with_config().limit(MOST_BYTES).lossy_utf8(true).read_to_string().map_err(fail)
    }

    fn missing(&self) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, format!("{} has no metric {}", self.url, self.selector.name))
    }
}

/// What fetches pages, and gives up on those that do not come.
pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into()
}

impl Metric for Source {
    fn read(&mut self, _: &Snapshot) -> io::Result<Reading> {
        self.reading()
    }
}

/// A value that goes up and down. Between two readings it is taken to change evenly.
#[derive(Clone, Debug)]
pub struct Gauge {
    source: Source,
    level: Level,
}

impl Gauge {
    /// What a page has there.
    pub fn new(source: Source) -> Self {
        Self { source, level: Level::default() }
    }
}

impl Metric for Gauge {
    fn read(&mut self, _: &Snapshot) -> io::Result<Reading> {
        let value = self.source.value()?;
        let at = now();
        self.level.look(at, value);
        Ok(Reading { level: Some(self.level.until(at)), ..Reading::default() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Answers so many requests with a page, on the address that is returned.
    fn serve(status: &'static str, page: &'static str, times: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for _ in 0..times {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4_096]).unwrap();
                let length = page.len();
                let head =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all(format!("{head}{page}").as_bytes()).unwrap();
            }
        });
        format!("http://{address}/metrics")
    }

    #[test]
    fn a_page_is_fetched_and_its_metric_found() {
        let url = serve("200 OK", "requests_total{code=\"200\"} 41\nrequests_total{code=\"500\"} 1\n", 2);
        assert_eq!(Source::parse(&format!("{url}#requests_total")).unwrap().value().unwrap(), 42.0);
        let missing = Source::parse(&format!("{url}#replies_total")).unwrap().value().unwrap_err();
        assert!(missing.to_string().ends_with("has no metric replies_total"), "{missing}");
    }

    #[test]
    fn a_histogram_has_units_and_latencies() {
        let url = serve("200 OK", "t_seconds_bucket{le=\"1\"} 8\nt_seconds_sum 0.5\nt_seconds_count 8\n", 1);
        let reading = Source::parse(&format!("{url}#t_seconds")).unwrap().reading().unwrap();
        assert_eq!(reading, Reading { units: 8.0, latency: Some(5e8), ..Reading::default() });
    }

    #[test]
    fn errors_name_the_page() {
        let url = serve("503 Service Unavailable", "", 1);
        let error = Source::parse(&format!("{url}#a")).unwrap().value().unwrap_err().to_string();
        assert!(error.contains(&url) && error.contains("503"), "{error}");
        assert!(matches!(Source::parse("http://localhost/metrics"), Err(SourceError::NoName(_))));
        assert!(matches!(Source::parse("https://localhost/metrics#a"), Err(SourceError::NotHttp(_))));
    }
}
