//! Texts of findings, shared by all formats of a report.

use std::path::Path;

use crate::{
    analysis::{
        factor::{Factor, FactorKind},
        verdict::Verdict,
    },
    demangle::for_people,
    printable::printable_name,
    record::{Candidate, PhaseKind},
    report::table::place,
    units::Nanos,
};

/// A function's printable, demangled name. Long names are cut.
pub fn name(factor: &Factor) -> String {
    printable_name(whole_name(factor))
}

/// A function's whole demangled name, not escaped.
pub fn whole_name(factor: &Factor) -> String {
    people_name(factor.kind, &factor.name)
}

/// A name for the user: native functions are demangled, without hashes of the build.
pub fn people_name(kind: FactorKind, name: &str) -> String {
    match kind {
        FactorKind::Native => for_people(name).unwrap_or_else(|| name.to_owned()),
        FactorKind::Python | FactorKind::Usdt | FactorKind::Group => name.to_owned(),
    }
}

/// The name of a candidate.
pub fn candidate_name(candidate: &Candidate) -> String {
    people_name(candidate.kind.into(), &candidate.name_and_caller())
}

/// A function's name with its place: `render_section (page.py:88)`.
pub fn name_and_place(factor: &Factor) -> String {
    name_and_place_of(&name(factor), factor.file.as_deref(), factor.line)
}

/// A printable name with its place.
pub fn name_and_place_of(name: &str, file: Option<&Path>, line: Option<u32>) -> String {
    let name = printable_name(name);
    match file {
        Some(file) => format!("{name} ({})", printable_name(place(file, line))),
        None => name,
    }
}

/// Own time per unit.
pub fn own(factor: &Factor) -> String {
    factor.own_ns_per_unit.map_or_else(nothing, time)
}

/// `0.98 [0.93, 1.03]`.
pub fn sensitivity(factor: &Factor) -> String {
    interval(factor.sensitivity, factor.low, factor.high, |value| fixed(value, 2), "")
}

/// `5.1 % [4.9, 5.4]`.
pub fn worth(factor: &Factor) -> String {
    let shown = |value: f64| fixed(value * 100.0, 1);
    interval(factor.worth, factor.worth_low, factor.worth_high, shown, " %")
}

/// A value with its interval; the unit comes after the first number.
fn interval(
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    shown: impl Fn(f64) -> String,
    unit: &str,
) -> String {
    match (value, low, high) {
        (Some(value), Some(low), Some(high)) => {
            format!("{}{unit} [{}, {}]", shown(value), shown(low), shown(high))
        }
        (None, None, Some(high)) => format!("< {}{unit}", shown(high)),
        _ => nothing(),
    }
}

/// A number with this many decimals. A value that rounds to zero has no minus sign.
pub fn fixed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(size) if size.chars().all(|c| matches!(c, '0' | '.')) => size.to_owned(),
        _ => text,
    }
}

/// A verdict with an explanation.
pub fn verdict(factor: &Factor) -> String {
    let short = short_verdict(factor.verdict);
    match (factor.verdict, factor.slack_ns) {
        (Verdict::DoesNotMatter, Some(slack)) => format!("{short} (hidden up to {} a unit)", rounded(slack)),
        (Verdict::DoesNotMatter, None) if factor.low.is_some_and(|low| low > 0.0) => {
            format!("{short} (it shows, but too little)")
        }
        _ => short.to_owned(),
    }
}

/// A verdict without explanation.
pub fn short_verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Matters => "matters",
        Verdict::DoesNotMatter => "does not matter",
        Verdict::Undecided => "undecided",
        Verdict::Dismissed => "dismissed",
    }
}

/// The name of a phase.
pub fn phase_name(kind: PhaseKind) -> &'static str {
    match kind {
        PhaseKind::Census => "census",
        PhaseKind::Titrate => "titrate",
        PhaseKind::Screen => "screen",
        PhaseKind::Confirm => "confirm",
        PhaseKind::Test => "test",
        PhaseKind::Ladder => "ladder",
        PhaseKind::Recover => "recover",
    }
}

/// A time in ns. Noise may have made it negative; then it is 0.
pub fn time(ns: f64) -> String {
    Nanos(ns.max(0.0) as u64).to_string()
}

/// A time, rounded to two digits.
pub fn rounded(ns: f64) -> Nanos {
    let scale = 10_f64.powf((ns.max(1.0).log10().floor() - 1.0).max(0.0));
    Nanos(((ns / scale).round() * scale) as u64)
}

/// The first of some names, and how many more there are.
pub fn some_of(names: &[String], most: usize) -> String {
    let named = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The text of an unknown value.
pub fn nothing() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_zero_has_no_minus_sign() {
        assert_eq!(
            [-0.004, -0.006, 0.0, 1.0].map(|value| fixed(value, 2)),
            ["0.00", "-0.01", "0.00", "1.00"]
        );
    }

    #[test]
    fn two_digits_are_enough() {
        assert_eq!([1_234_567.0, 99.0, 0.0].map(rounded), [Nanos(1_200_000), Nanos(99), Nanos(0)]);
    }
}
