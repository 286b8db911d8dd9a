//! Parses conditions.

use std::str::FromStr;

use super::{Condition, End, Field, Operator, Quantity};

/// All fields by name.
const FIELDS: [(&str, Field); 22] = [
    ("worth", Field::Worth(End::Value)),
    ("worth_low", Field::Worth(End::Low)),
    ("worth_high", Field::Worth(End::High)),
    ("sensitivity", Field::Sensitivity(End::Value)),
    ("low", Field::Sensitivity(End::Low)),
    ("high", Field::Sensitivity(End::High)),
    ("own", Field::Own),
    ("calls", Field::Calls),
    ("slack", Field::Slack),
    ("time_per_unit", Field::TimePerUnit),
    ("worth_change", Field::WorthChange(End::Value)),
    ("worth_change_low", Field::WorthChange(End::Low)),
    ("worth_change_high", Field::WorthChange(End::High)),
    ("sensitivity_change", Field::SensitivityChange(End::Value)),
    ("sensitivity_change_low", Field::SensitivityChange(End::Low)),
    ("sensitivity_change_high", Field::SensitivityChange(End::High)),
    ("own_change", Field::OwnChange(End::Value)),
    ("own_change_low", Field::OwnChange(End::Low)),
    ("own_change_high", Field::OwnChange(End::High)),
    ("time_per_unit_change", Field::TimePerUnitChange(End::Value)),
    ("time_per_unit_change_low", Field::TimePerUnitChange(End::Low)),
    ("time_per_unit_change_high", Field::TimePerUnitChange(End::High)),
];

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It has no comparison.
    #[error("`{0}` has no comparison: write it like `worth(render_section) > 5%`")]
    NoComparison(String),
    /// The field is unknown.
    #[error(
        "a report has no `{0}`: worth, sensitivity, own, calls and slack belong to a function, time_per_unit \
         does not; worth_low, worth_high, low and high are ends of intervals; worth_change, \
         sensitivity_change, own_change and time_per_unit_change need two reports"
    )]
    UnknownField(String),
    /// The field needs a function, and none is named.
    #[error("{0} needs a function: write {0}(NAME), where * matches any text")]
    NoFunction(String),
    /// The field takes no function, and one is named.
    #[error("{0} takes no function: leave out the parentheses")]
    NotOfAFunction(String),
    /// The bound is not valid.
    #[error("`{0}` is not a bound: write {1}")]
    Bound(String, &'static str),
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        // Names of functions may contain `<` and `>`: the operator comes after the parentheses.
        let after_name = text.rfind(')').map_or(0, |at| at + 1);
        let at = text[after_name..].find(['<', '>']).map(|at| at + after_name);
        let at = at.ok_or_else(|| ConditionError::NoComparison(text.to_owned()))?;
        let (what, rest) = text.split_at(at);
        let (comparison, bound) = match (&rest[..1], rest[1..].strip_prefix('=')) {
            (">", Some(bound)) => (Operator::AtLeast, bound),
            (">", None) => (Operator::Above, &rest[1..]),
            (_, Some(bound)) => (Operator::AtMost, bound),
            (_, None) => (Operator::Below, &rest[1..]),
        };
        let what = what.trim();
        let (name, function) = match what.split_once('(') {
            Some((name, rest)) => (name.trim(), Some(rest.strip_suffix(')').unwrap_or(rest).trim())),
            None => (what, None),
        };
        let known = FIELDS.iter().find(|(known, _)| *known == name);
        let (_, field) = *known.ok_or_else(|| ConditionError::UnknownField(name.to_owned()))?;
        match (field.needs_function(), function) {
            (true, None | Some("")) => return Err(ConditionError::NoFunction(name.to_owned())),
            (false, Some(_)) => return Err(ConditionError::NotOfAFunction(name.to_owned())),
            _ => {}
        }
        let bound = parse_bound(bound.trim(), field.quantity())?;
        let function = function.map(str::to_owned);
        Ok(Self { text: text.trim().to_owned(), field, function, comparison, bound })
    }
}

fn parse_bound(text: &str, quantity: Quantity) -> Result<f64, ConditionError> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let (bound, expected) = match quantity {
        Quantity::Share => {
            (text.strip_suffix('%').and_then(number).map(|share| share / 100.0), "a share, like 5%")
        }
        Quantity::Number => (number(text), "a number, like 0.5"),
        Quantity::Time => (time(text), "a time, like 250us"),
    };
    bound.ok_or_else(|| ConditionError::Bound(text.to_owned(), expected))
}

/// Parses a time in ns. It may be negative, for changes.
fn time(text: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) = units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number.trim().parse::<f64>().ok().filter(|value| value.is_finite()).map(|number| number * unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_say_how_to_write_a_condition() {
        for text in [
            "",
            "worth(f)",
            "worth > 5%",
            "speed(f) > 1",
            "worth(f) > 5",
            "own(f) > 5",
            "time_per_unit(f) > 1s",
            "calls(f) > x",
            "worth(f) = 5%",
            "worth() > 5%",
        ] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
        let error = "speed(f) > 1".parse::<Condition>().unwrap_err().to_string();
        assert!(error.contains("a report has no `speed`"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Condition>();
        }
    }
}
