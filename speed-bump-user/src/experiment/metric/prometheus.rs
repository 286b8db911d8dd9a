//! A metric that a service exports for Prometheus: a counter of units, or a histogram of their times.

use std::io;

use super::{Metric, Reading, exposition::Selector, is_countable, level::Level, page::Pages};
use crate::{session::snapshot::Snapshot, sys::clock::now};

/// A metric on a page: `http://HOST:PORT/metrics#name{label="value"}`.
#[derive(Clone, Debug)]
pub struct Source {
    pages: Pages,
    url: String,
    selector: Selector,
}

/// Why a text is not such a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// It has no name.
    #[error("`{0}` names no metric: write URL#name, or URL#name{{label=\"value\"}}")]
    NoName(String),
    /// It is not an HTTP URL.
    #[error("`{0}` is not a usable URL: it must begin with http://")]
    NotHttp(String),
}

impl Source {
    /// Parses `URL#selector`.
    ///
    /// # Errors
    /// It is not of that form.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let (url, selector) = text.split_once('#').ok_or_else(|| SourceError::NoName(text.to_owned()))?;
        if !url.starts_with("http://") {
            return Err(SourceError::NotHttp(url.to_owned()));
        }
        let selector = Selector::parse(selector).ok_or_else(|| SourceError::NoName(text.to_owned()))?;
        Ok(Self { pages: Pages::new(), url: url.to_owned(), selector })
    }

    /// The metric's name.
    pub fn name(&self) -> &str {
        &self.selector.name
    }

    /// Reads the present value; several selected samples add up.
    ///
    /// # Errors
    /// The page cannot be read, does not have this name, or has no valid number there.
    pub fn value(&self) -> io::Result<f64> {
        let page = self.pages.text(&self.url)?;
        self.sum(&page, "")?.ok_or_else(|| self.missing())
    }

    /// Units of a counter; or for a histogram or summary in seconds, their count and total time.
    fn reading(&self) -> io::Result<Reading> {
        let page = self.pages.text(&self.url)?;
        if let Some(units) = self.sum(&page, "")? {
            return Ok(Reading { units, ..Reading::default() });
        }
        let units = self.sum(&page, "_count")?.ok_or_else(|| self.missing())?;
        let latency = self.sum(&page, "_sum")?.map(|seconds| seconds * 1e9);
        Ok(Reading { units, latency, ..Reading::default() })
    }

    /// The number on a page, with this suffix of the name.
    fn sum(&self, page: &str, suffix: &str) -> io::Result<Option<f64>> {
        let sum = self.selector.sum(page, suffix);
        match sum.filter(|value| !is_countable(*value)) {
            None => Ok(sum),
            Some(value) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{} has {value} for {}{suffix}, which nothing can be counted with: select a series that \
                     always has a number, with {}{{label=\"value\"}}",
                    self.url, self.selector.name, self.selector.name
                ),
            )),
        }
    }

    fn missing(&self) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, format!("{} has no metric {}", self.url, self.selector.name))
    }
}

impl Metric for Source {
    fn unit(&self) -> Option<&'static str> {
        Some("unit that the service counts")
    }

    fn is_early(&self) -> bool {
        true
    }

    fn read(&mut self, _: &Snapshot) -> io::Result<Reading> {
        self.reading()
    }
}

/// A gauge. We assume that it changes evenly between two readings.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    source: Source,
    level: Level,
}

impl Gauge {
    /// A gauge from this source.
    pub(crate) fn new(source: Source) -> Self {
        Self { source, level: Level::default() }
    }
}

impl Metric for Gauge {
    fn unit(&self) -> Option<&'static str> {
        None
    }

    fn read(&mut self, _: &Snapshot) -> io::Result<Reading> {
        let value = self.source.value()?;
        let at = now();
        self.level.add_even(at, value);
        Ok(Reading { level: Some(self.level.until(at)), ..Reading::default() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::page::tests::serve, *};

    #[test]
    fn a_page_is_fetched_and_its_metric_found() {
        let url = serve("200 OK", "", "requests_total{code=\"200\"} 41\nrequests_total{code=\"500\"} 1\n", 2);
        assert_eq!(Source::parse(&format!("{url}#requests_total")).unwrap().value().unwrap(), 42.0);
        let missing = Source::parse(&format!("{url}#replies_total")).unwrap().value().unwrap_err();
        assert!(missing.to_string().ends_with("has no metric replies_total"), "{missing}");
    }

    #[test]
    fn a_histogram_has_units_and_latencies() {
        let url =
            serve("200 OK", "", "t_seconds_bucket{le=\"1\"} 8\nt_seconds_sum 0.5\nt_seconds_count 8\n", 1);
        let reading = Source::parse(&format!("{url}#t_seconds")).unwrap().reading().unwrap();
        assert_eq!(reading, Reading { units: 8.0, latency: Some(5e8), ..Reading::default() });
    }

    #[test]
    fn errors_name_the_page() {
        let url = serve("503 Service Unavailable", "", "", 1);
        let error = Source::parse(&format!("{url}#a")).unwrap().value().unwrap_err().to_string();
        assert!(error.contains(&url) && error.contains("503"), "{error}");
        assert!(matches!(Source::parse("http://localhost/metrics"), Err(SourceError::NoName(_))));
        assert!(matches!(Source::parse("https://localhost/metrics#a"), Err(SourceError::NotHttp(_))));
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for (page, name) in [
            ("t_seconds NaN\n", "t_seconds"),
            ("t_seconds_count 3\nt_seconds_sum NaN\n", "t_seconds_sum"),
            ("t_seconds_count +Inf\nt_seconds_sum 1\n", "t_seconds_count"),
            ("t_seconds 1e308\n", "t_seconds"),
            ("t_seconds{a=\"b\"} 9e307\nt_seconds{a=\"c\"} 1e308\n", "t_seconds"),
        ] {
            let url = serve("200 OK", "", page, 1);
            let error =
                Source::parse(&format!("{url}#t_seconds")).unwrap().reading().unwrap_err().to_string();
            assert!(error.starts_with(&url) && error.contains(&format!(" for {name}, ")), "{error}");
        }
    }
}
