//! Conditions on a report, for continuous integration: `worth(render_section) > 5%`.
//!
//! A condition compares a number of the JSON with a bound. Most numbers belong to a function:
//! `worth_low(render*) > 5%` holds if the worth of any function with such a name is *shown* to be above 5 %,
//! and `worth(…)` if the estimate is. With two experiments, a condition is about the second one, and
//! `worth_change(…)` about the change.

mod parse;

use std::fmt;

use super::{
    compare::{Change, Comparison},
    words::whole_name,
};
use crate::{
    analysis::{factor::Factor, findings::Findings, verdict::Verdict},
    demangle::names_of,
};

pub use parse::ConditionError;

/// A comparison of a number of the report with a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    field: Field,
    /// Pattern of function names; `None` for a number of the whole experiment.
    function: Option<String>,
    comparison: Operator,
    bound: f64,
}

/// The number that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Worth(End),
    Sensitivity(End),
    Own,
    Calls,
    Slack,
    TimePerUnit,
    WorthChange(End),
    SensitivityChange(End),
    OwnChange(End),
    TimePerUnitChange(End),
}

/// The value, or an end of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Value,
    Low,
    High,
}

/// How the number is compared with the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// The kind of a bound's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Share,
    Number,
    Time,
}

impl Field {
    fn quantity(self) -> Quantity {
        match self {
            Self::Worth(_) | Self::WorthChange(_) => Quantity::Share,
            Self::Sensitivity(_) | Self::SensitivityChange(_) | Self::Calls => Quantity::Number,
            Self::Own | Self::Slack | Self::TimePerUnit | Self::OwnChange(_) | Self::TimePerUnitChange(_) => {
                Quantity::Time
            }
        }
    }

    fn needs_function(self) -> bool {
        !matches!(self, Self::TimePerUnit | Self::TimePerUnitChange(_))
    }

    fn is_change(self) -> bool {
        matches!(
            self,
            Self::WorthChange(_)
                | Self::SensitivityChange(_)
                | Self::OwnChange(_)
                | Self::TimePerUnitChange(_)
        )
    }
}

/// Why it is unknown whether a condition holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is no such function.
    #[error("{condition}: no function of the report is named {name}")]
    NoFunction {
        /// Condition as it was written.
        condition: String,
        /// The name that was searched.
        name: String,
    },
    /// The value is unknown for all functions that the pattern matches.
    #[error("{0}: the value is unknown: the function is undecided, or was not tested")]
    NoValue(String),
    /// The experiment's own checks failed.
    #[error("{0}: the experiment's own checks failed, so its numbers are not valid")]
    NotValid(String),
    /// The two reports are not comparable.
    #[error("{0}: the two reports are not comparable")]
    NotComparable(String),
    /// A change needs two reports, and there is only one.
    #[error("{0}: a change needs two reports: name the earlier one too")]
    OneReport(String),
}

/// The functions for which a condition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Names of the functions for which it holds.
    pub functions: Vec<String>,
    /// Names of the functions for which it is unknown.
    pub unknown: Vec<String>,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// Evaluates the condition: for which functions it holds, and for which that is unknown.
    ///
    /// # Errors
    /// It is unknown for all functions whether the condition holds: see [`Unknown`].
    pub fn holds(&self, findings: &Findings, comparison: Option<&Comparison>) -> Result<Holds, Unknown> {
        if !findings.validity.holds {
            return Err(Unknown::NotValid(self.text.clone()));
        }
        if self.field.is_change() && comparison.is_some_and(Comparison::is_fatal) {
            return Err(Unknown::NotComparable(self.text.clone()));
        }
        if self.field.is_change() && comparison.is_none() {
            return Err(Unknown::OneReport(self.text.clone()));
        }
        let mut values: Vec<(String, Option<f64>)> = Vec::new();
        match &self.function {
            None => {
                let change = comparison.map(|of| of.time_per_unit_ns);
                let value = match self.field {
                    Field::TimePerUnitChange(end) => change.and_then(|change| part(change, end)),
                    _ => findings.time_per_unit_ns,
                };
                values.push(("a unit".to_owned(), value));
            }
            Some(pattern) => {
                // The name as reports write it, or as the file does.
                let named = |name: &str| names_of(name).any(|name| matches(pattern, &name));
                if self.field.is_change() {
                    let functions = comparison.iter().flat_map(|of| &of.functions);
                    values.extend(functions.filter(|of| named(&of.name)).map(|of| {
                        let value = match self.field {
                            Field::WorthChange(end) => part(of.worth, end),
                            Field::SensitivityChange(end) => part(of.sensitivity, end),
                            Field::OwnChange(end) => part(of.own_ns_per_unit, end),
                            _ => None,
                        };
                        (of.name.clone(), value)
                    }));
                } else {
                    // The symbol, or the demangled name.
                    let is_meant = |of: &&Factor| named(&of.name) || named(&whole_name(of));
                    let factors = findings.factors.iter().filter(is_meant);
                    values.extend(factors.map(|of| (whole_name(of), self.value(of, findings))));
                }
                if values.is_empty() {
                    return Err(Unknown::NoFunction { condition: self.text.clone(), name: pattern.clone() });
                }
            }
        }
        if values.iter().all(|(_, value)| value.is_none()) {
            return Err(Unknown::NoValue(self.text.clone()));
        }
        let mut holds = Holds::default();
        for (name, value) in values {
            match value {
                None => holds.unknown.push(name),
                Some(value) if self.compares(value) => holds.functions.push(name),
                Some(_) => {}
            }
        }
        Ok(holds)
    }

    fn value(&self, of: &Factor, findings: &Findings) -> Option<f64> {
        // A dismissed function is worth its own time at most.
        let share = || of.share(findings.time_per_unit_ns);
        let is_dismissed = of.verdict == Verdict::Dismissed;
        match self.field {
            Field::Worth(End::High) if is_dismissed => share(),
            Field::Worth(_) if is_dismissed => Some(0.0),
            Field::Worth(End::Value) => of.worth,
            Field::Worth(End::Low) => of.worth_low,
            Field::Worth(End::High) => of.worth_high,
            Field::Sensitivity(End::Value) => of.sensitivity,
            Field::Sensitivity(End::Low) => of.low,
            Field::Sensitivity(End::High) => of.high,
            Field::Own => of.own_ns_per_unit,
            Field::Calls => Some(of.calls_per_unit),
            Field::Slack => of.slack_ns,
            _ => None,
        }
    }

    fn compares(&self, value: f64) -> bool {
        match self.comparison {
            Operator::Above => value > self.bound,
            Operator::AtLeast => value >= self.bound,
            Operator::Below => value < self.bound,
            Operator::AtMost => value <= self.bound,
        }
    }
}

/// The change, or an end of its interval.
fn part(change: Change, end: End) -> Option<f64> {
    match end {
        End::Value => change.change,
        End::Low => change.low,
        End::High => change.high,
    }
}

/// Whether a pattern matches a name: `*` matches any text, every other character itself.
fn matches(pattern: &str, name: &str) -> bool {
    let parts: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::{analysis::findings::findings, record::Experiment, simulated::Function, testing};

    fn found() -> Findings {
        let function = Function { calls: 2.0, sensitivity: 1.0, slack: 0.0 };
        let mut found =
            findings(&testing::measured(&[("render", function, 300), ("a::<b>::c", function, 5)]));
        found.time_per_unit_ns = Some(1e6);
        let render = found.factors.iter_mut().find(|of| of.name == "render").unwrap();
        (render.worth, render.worth_low, render.worth_high) = (Some(0.06), Some(0.04), Some(0.08));
        found
    }

    fn holds(text: &str) -> Result<Vec<String>, Unknown> {
        text.parse::<Condition>().unwrap().holds(&found(), None).map(|holds| holds.functions)
    }

    #[test]
    fn conditions_hold_or_do_not() {
        assert_eq!(holds("worth(render) > 5%").unwrap(), ["render"]);
        assert_eq!(holds("worth_low(render) > 5%").unwrap(), [] as [&str; 0]);
        assert_eq!(holds(" worth ( r*r ) >= 6 % ").unwrap(), ["render"]);
        assert_eq!(holds("own(*)<10us").unwrap(), ["a::<b>::c"]);
        assert_eq!(holds("calls(a::<b>::c) <= 2").unwrap(), ["a::<b>::c"]);
        assert_eq!(holds("time_per_unit > 0.5ms").unwrap(), ["a unit"]);
    }

    #[test]
    fn unknown_values_are_errors() {
        assert!(matches!(holds("worth(nobody) > 5%"), Err(Unknown::NoFunction { .. })));
        assert_eq!(holds("slack(render) > 5us"), Err(Unknown::NoValue("slack(render) > 5us".to_owned())));
        assert!(matches!(holds("worth_change(render) > 5%"), Err(Unknown::OneReport(_))));
    }

    #[test]
    fn a_dismissed_function_is_worth_at_most_its_own_time() {
        let mut found = found();
        let other = found.factors.iter_mut().find(|of| of.name == "a::<b>::c").unwrap();
        other.verdict = Verdict::Dismissed;
        let holds =
            |text: &str| text.parse::<Condition>().unwrap().holds(&found, None).unwrap().functions.len();
        assert_eq!(holds("worth(a*) > 5%"), 0);
        assert_eq!(holds("worth_high(a*) > 0.4%"), 1);
    }

    #[test]
    fn names_may_be_demangled_or_symbols() {
        let mut found = found();
        let render = found.factors.iter_mut().find(|of| of.name == "render").unwrap();
        render.name = "_ZN2ns6renderB5cxx11Ei".to_owned();
        for name in ["ns::render[abi:cxx11](int)", "ns::render[abi:cxx11]", "_ZN2ns6renderB5cxx11Ei", "ns::*"]
        {
            let condition = format!("worth({name}) > 0%").parse::<Condition>().unwrap();
            assert_eq!(condition.holds(&found, None).unwrap().functions.len(), 1, "{name}");
        }
    }

    #[test]
    fn values_are_withheld_when_checks_failed() {
        let mut found = found();
        found.validity.holds = false;
        let condition: Condition = "worth(render) > 5%".parse().unwrap();
        assert!(matches!(condition.holds(&found, None), Err(Unknown::NotValid(_))));
        found.validity.holds = true;
        let holds = "slack(*) > 1us".parse::<Condition>().unwrap().holds(&found, None);
        assert!(matches!(holds, Err(Unknown::NoValue(_))));
        let holds = "high(*) > 1".parse::<Condition>().unwrap();
        let of = found.factors.iter_mut().find(|of| of.name == "render").unwrap();
        of.high = Some(2.0);
        let holds = holds.holds(&found, None).unwrap();
        assert_eq!(
            (holds.functions, holds.unknown),
            (vec!["render".to_owned()], vec!["a::<b>::c".to_owned()])
        );
    }

    #[test]
    fn changes_compare_two_reports() {
        let measured =
            testing::measured(&[("render", Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 }, 300)]);
        let of = |worth: f64| {
            let mut findings = findings(&measured);
            findings.factors[0].worth = Some(worth);
            Experiment { measured: measured.clone(), findings }
        };
        let (before, after) = (of(0.02), of(0.05));
        let comparison = super::super::compare::compare(&before, &after);
        let holds = |text: &str| {
            text.parse::<Condition>()
                .unwrap()
                .holds(&after.findings, Some(&comparison))
                .unwrap()
                .functions
                .len()
        };
        assert_eq!(holds("worth_change(render) > 2%"), 1);
        assert_eq!(holds("worth_change(render) > 4%"), 0);
        assert_eq!(holds("worth(render) > 4%"), 1);
    }

    proptest! {
        #[test]
        fn a_star_matches_any_text(
            before in "[a-z:<>]{0,8}",
            middle in "[a-z()]{0,8}",
            after in "[a-z]{0,8}",
        ) {
            let name = format!("{before}{middle}{after}");
            let pattern = format!("{before}*{after}");
            prop_assert!(matches(&pattern, &name) && matches("*", &name) && matches(&name, &name));
            let longer = format!("{name}x");
            prop_assert!(!matches(&name, &longer));
        }
    }
}
