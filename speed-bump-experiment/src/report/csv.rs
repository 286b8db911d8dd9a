//! The functions of an experiment as comma-separated values (RFC 4180), with all digits.
//!
//! A cell that begins like a formula gets an apostrophe before it, because spreadsheets would run it, and
//! names come from outside.

use super::words::{short_verdict, whole_name};
use crate::{
    analysis::factor::{Factor, FactorKind},
    printable::printable,
    record::{Experiment, Origin},
};

const HEADING: [&str; 16] = [
    "name",
    "file",
    "line",
    "kind",
    "origin",
    "calls_per_unit",
    "own_ns_per_unit",
    "sensitivity",
    "low",
    "high",
    "worth",
    "worth_low",
    "worth_high",
    "slack_ns",
    "verdict",
    "reason",
];

/// A heading, and a line for each function, including dismissed ones. Lines end with a line feed.
pub fn render(Experiment { findings, .. }: &Experiment) -> String {
    let mut text = HEADING.join(",") + "\n";
    for factor in &findings.factors {
        text += &(cells(factor).join(",") + "\n");
    }
    text
}

fn cells(factor: &Factor) -> [String; 16] {
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let file = factor.file.as_ref().map(|file| file.display().to_string());
    [
        safe(whole_name(factor)),
        safe(file.unwrap_or_default()),
        factor.line.map(|line| line.to_string()).unwrap_or_default(),
        kind(factor.kind).to_owned(),
        origin(factor.origin).to_owned(),
        factor.calls_per_unit.to_string(),
        number(factor.own_ns_per_unit),
        number(factor.sensitivity),
        number(factor.low),
        number(factor.high),
        number(factor.worth),
        number(factor.worth_low),
        number(factor.worth_high),
        number(factor.slack_ns),
        short_verdict(factor.verdict).to_owned(),
        safe(factor.reason.clone().unwrap_or_default()),
    ]
}

fn kind(kind: FactorKind) -> &'static str {
    match kind {
        FactorKind::Python => "python",
        FactorKind::Native => "native",
        FactorKind::Usdt => "usdt",
        FactorKind::Group => "group",
    }
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Service => "service",
        Origin::Unknown => "unknown",
        Origin::Library => "library",
        Origin::Native => "native",
    }
}

/// A cell of text that no spreadsheet takes for a formula.
fn safe(text: String) -> String {
    let text = printable(text);
    let is_formula = text.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    // Always quoted, because some programs use separators other than commas.
    let quote = if is_formula { "\"'" } else { "\"" };
    format!("{quote}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_and_never_a_formula() {
        assert_eq!(safe("plain".to_owned()), "\"plain\"");
        assert_eq!(safe("a,\"b\"".to_owned()), "\"a,\"\"b\"\"\"");
        assert_eq!(safe("=cmd()\n".to_owned()), "\"'=cmd()\\n\"");
    }
}
