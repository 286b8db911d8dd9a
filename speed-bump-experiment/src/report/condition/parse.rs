//! Conditions as people write them.

use std::str::FromStr;

use super::{Condition, End, Field, Operator, Quantity};

/// All fields, with the names that they have.
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

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Nothing is compared.
    #[error("`{0}` compares nothing: write it as `worth(render_section) > 5%`")]
    NoComparison(String),
    /// What is compared is not known.
    #[error(
        "`{0}` is nothing that a report has: worth, sensitivity, own, calls and slack are of a function, \
         time_per_unit is not; worth_low, worth_high, low and high are ends of intervals; worth_change, \
         sensitivity_change, own_change and time_per_unit_change are of two reports"
    )]
    UnknownField(String),
    /// It is of a function, and none is named.
    #[error("{0} is of a function: write {0}(NAME), where * stands for anything")]
    NoFunction(String),
    /// It is of no function, and one is named.
    #[error("{0} is of no function: leave out what is in parentheses")]
    NotOfAFunction(String),
    /// The bound is not one.
    #[error("`{0}` is no bound: write {1}")]
    Bound(String, &'static str),
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        // Names of functions have `<` and `>` in them: the last one outside of parentheses compares.
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
        let (name, of) = match what.split_once('(') {
            Some((name, of)) => (name.trim(), Some(of.strip_suffix(')').unwrap_or(of).trim())),
            None => (what, None),
        };
        let known = FIELDS.iter().find(|(known, _)| *known == name);
        let (_, field) = *known.ok_or_else(|| ConditionError::UnknownField(name.to_owned()))?;
        match (field.is_of_a_function(), of) {
            (true, None | Some("")) => return Err(ConditionError::NoFunction(name.to_owned())),
            (false, Some(_)) => return Err(ConditionError::NotOfAFunction(name.to_owned())),
            _ => {}
        }
        let bound = parse_bound(bound.trim(), field.quantity())?;
        Ok(Self { text: text.trim().to_owned(), field, of: of.map(str::to_owned), comparison, bound })
    }
}

fn parse_bound(text: &str, quantity: Quantity) -> Result<f64, ConditionError> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let (bound, expected) = match quantity {
        Quantity::Share => (text.strip_suffix('%').and_then(number).map(|of| of / 100.0), "a share, as 5%"),
        Quantity::Number => (number(text), "a number, as 0.5"),
        Quantity::Time => (time(text), "a time, as 250us"),
    };
    bound.ok_or_else(|| ConditionError::Bound(text.to_owned(), expected))
}

/// A time in ns, which may be below zero, as changes are.
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
    fn what_is_no_condition_is_refused_with_the_way_out() {
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
        assert!(error.contains("`speed` is nothing that a report has"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Condition>();
        }
    }
}
