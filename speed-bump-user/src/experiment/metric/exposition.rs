//! Prometheus' text format: parses the samples of a page, and selects some of them.
//!
//! Follows the format's description (Prometheus, "Exposition formats", version 0.0.4): names may have colons,
//! like vLLM's; label values are escaped strings, with commas and braces.

use std::collections::BTreeMap;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Its labels.
    pub(super) labels: BTreeMap<&'a str, String>,
    /// Its value.
    pub(super) value: f64,
}

/// The samples of a page. Skips lines that are not samples.
pub(super) fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(sample)
}

/// Selects all samples with a name and labels; they may have other labels too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    /// The name.
    pub(super) name: String,
    /// Labels, with their values.
    pub(super) labels: BTreeMap<String, String>,
}

impl Selector {
    /// Parses `name` or `name{label="value",…}`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, labels, rest) = name_and_labels(text.trim())?;
        let labels = labels.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
        rest.is_empty().then(|| Self { name: name.to_owned(), labels })
    }

    /// The sum of the selected samples, with this suffix of the name; `None` without any.
    pub(super) fn sum(&self, page: &str, suffix: &str) -> Option<f64> {
        let is_selected = |sample: &Sample<'_>| {
            sample.name.strip_suffix(suffix) == Some(&self.name)
                && self.labels.iter().all(|(label, value)| sample.labels.get(label.as_str()) == Some(value))
        };
        let values = samples(page).filter(is_selected).map(|sample| sample.value);
        values.reduce(|sum, value| sum + value)
    }
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, labels, rest) = name_and_labels(line)?;
    // A timestamp may follow.
    let value = rest.split_ascii_whitespace().next()?;
    Some(Sample { name, labels, value: value.parse().ok()? })
}

/// Splits off a name and its labels.
fn name_and_labels(text: &str) -> Option<(&str, BTreeMap<&str, String>, &str)> {
    let end = text.find(|c: char| !is_of_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_start();
    let Some(mut rest) = rest.strip_prefix('{') else { return Some((name, BTreeMap::new(), rest)) };
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((name, labels, rest.trim_start()));
        }
        let (label, behind) = rest.split_once('=')?;
        let (value, behind) = quoted(behind.trim_start().strip_prefix('"')?)?;
        labels.insert(label.trim(), value);
        rest = behind.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Splits off the text up to the closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | ':')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const PAGE: &str = "\
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"a, {b}\"} 1.0
vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"a, {b}\"} 41 1395066363000
vllm:request_success_created{engine=\"0\"} 1.7e+09
latency_seconds_bucket{le=\"+Inf\"} 7
latency_seconds_sum 0.25
latency_seconds_count 7
quoted{path=\"C:\\\\DIR\\n\\\"x\\\"\"} NaN
up 1
 bad{ 3
9bad 3
bad{a=\"b} 3
nothing
";

    #[test]
    fn samples_are_parsed() {
        let names: Vec<_> = samples(PAGE).map(|sample| sample.name).collect();
        assert_eq!(names.len(), 8, "{names:?}");
        let quoted = samples(PAGE).find(|sample| sample.name == "quoted").unwrap();
        assert_eq!(quoted.labels["path"], "C:\\DIR\n\"x\"");
        assert!(quoted.value.is_nan());
    }

    #[test]
    fn selected_samples_are_added_up() {
        let sum = |text: &str, suffix| Selector::parse(text).unwrap().sum(PAGE, suffix);
        assert_eq!(sum("vllm:request_success_total", ""), Some(42.0));
        assert_eq!(sum("vllm:request_success_total{finished_reason=\"stop\"}", ""), Some(1.0));
        assert_eq!(sum("vllm:request_success_total{finished_reason=\"abort\"}", ""), None);
        assert_eq!(sum("vllm:request_success_total{model_name=\"a, {b}\", engine=\"0\"}", ""), Some(42.0));
        assert_eq!(
            (sum("latency_seconds", "_sum"), sum("latency_seconds", "_count")),
            (Some(0.25), Some(7.0))
        );
        for text in ["", "{a=\"b\"}", "a{b}", "a{b=c}", "a{b=\"c\"", "a b", "1a"] {
            assert_eq!(Selector::parse(text), None, "{text}");
        }
    }

    proptest! {
        /// A service may answer anything.
        #[test]
        fn no_page_panics(page in "\\PC*", more in "[a-z{}=\",\\\\ \n#0-9.]{0,200}") {
            samples(&page).for_each(drop);
            samples(&more).for_each(drop);
            let _ = Selector::parse(&more);
        }
    }
}
