//! Conditions on a report, for continuous integration: `worth(render_section) > 5%`.
//!
//! A condition is a number of the JSON by its name there, of a function where it is one of a function, and a
//! bound: `worth_low(render*) > 5%` holds when the worth of any of them is *shown* to be above, and
//! `worth(…)` when the estimate is. Of two experiments it is of the second one; `worth_change(…)` is the
//! change.

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

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    field: Field,
    /// Of functions with such names; `None` where it is of the experiment.
    of: Option<String>,
    comparison: Operator,
    bound: f64,
}

/// What is compared.
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

/// How it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// What a bound is in.
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

    fn is_of_a_function(self) -> bool {
        !matches!(self, Self::TimePerUnit | Self::TimePerUnitChange(_))
    }

    fn is_of_two(self) -> bool {
        matches!(
            self,
            Self::WorthChange(_)
                | Self::SensitivityChange(_)
                | Self::OwnChange(_)
                | Self::TimePerUnitChange(_)
        )
    }
}

/// Why it cannot be said whether a condition holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is no such function.
    #[error("{condition}: no function of the report is named {name}")]
    NoFunction {
        /// The condition.
        condition: String,
        /// What was looked for.
        name: String,
    },
    /// It is not known of any of them.
    #[error("{0}: the experiment does not know it: it is undecided, or was not looked at")]
    NoValue(String),
    /// No number stands.
    #[error("{0}: the experiment's own checks failed, so that no number stands")]
    NotValid(String),
    /// The two are not comparable.
    #[error("{0}: the two reports are not comparable")]
    NotComparable(String),
    /// It is a change, and there is one report.
    #[error("{0}: a change is of two reports: name the one before, too")]
    OneReport(String),
}

/// Of which functions a condition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Of these.
    pub of: Vec<String>,
    /// Of these it is not known.
    pub unknown: Vec<String>,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// Whether it holds: of functions, for which it does, and of which that is not known.
    ///
    /// # Errors
    /// It is not known of any: there is no such function, or no such number.
    pub fn holds(&self, findings: &Findings, comparison: Option<&Comparison>) -> Result<Holds, Unknown> {
        if !findings.validity.holds {
            return Err(Unknown::NotValid(self.text.clone()));
        }
        if self.field.is_of_two() && comparison.is_some_and(|of| of.differences.iter().any(|of| of.fatal)) {
            return Err(Unknown::NotComparable(self.text.clone()));
        }
        if self.field.is_of_two() && comparison.is_none() {
            return Err(Unknown::OneReport(self.text.clone()));
        }
        let mut values: Vec<(String, Option<f64>)> = Vec::new();
        match &self.of {
            None => {
                let change = comparison.map(|of| of.time_per_unit_ns);
                let value = match self.field {
                    Field::TimePerUnitChange(end) => change.and_then(|of| of_change(of, end)),
                    _ => findings.time_per_unit_ns,
                };
                values.push(("a unit".to_owned(), value));
            }
            Some(pattern) => {
                // As reports write it, or as the file does.
                let named = |name: &str| names_of(name).any(|name| matches(pattern, &name));
                if self.field.is_of_two() {
                    let functions = comparison.iter().flat_map(|of| &of.functions);
                    values.extend(functions.filter(|of| named(&of.name)).map(|of| {
                        let value = match self.field {
                            Field::WorthChange(end) => of_change(of.worth, end),
                            Field::SensitivityChange(end) => of_change(of.sensitivity, end),
                            Field::OwnChange(end) => of_change(of.own_ns_per_unit, end),
                            _ => None,
                        };
                        (of.name.clone(), value)
                    }));
                } else {
                    // As it is, or as people write it.
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
                Some(value) if self.compares(value) => holds.of.push(name),
                Some(_) => {}
            }
        }
        Ok(holds)
    }

    fn value(&self, of: &Factor, findings: &Findings) -> Option<f64> {
        // What was dismissed is worth its own time at most, if all of that shows.
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

fn of_change(change: Change, end: End) -> Option<f64> {
    match end {
        End::Value => change.change,
        End::Low => change.low,
        End::High => change.high,
    }
}

/// Whether a name is meant: `*` stands for anything, and all else for itself.
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
        text.parse::<Condition>().unwrap().holds(&found(), None).map(|holds| holds.of)
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
    fn what_is_not_known_is_no_answer() {
        assert!(matches!(holds("worth(nobody) > 5%"), Err(Unknown::NoFunction { .. })));
        assert_eq!(holds("slack(render) > 5us"), Err(Unknown::NoValue("slack(render) > 5us".to_owned())));
        assert!(matches!(holds("worth_change(render) > 5%"), Err(Unknown::OneReport(_))));
    }

    /// It is worth less than what is looked at.
    #[test]
    fn what_was_dismissed_is_worth_no_more_than_it_takes() {
        let mut found = found();
        let other = found.factors.iter_mut().find(|of| of.name == "a::<b>::c").unwrap();
        other.verdict = Verdict::Dismissed;
        let holds = |text: &str| text.parse::<Condition>().unwrap().holds(&found, None).unwrap().of.len();
        assert_eq!(holds("worth(a*) > 5%"), 0);
        assert_eq!(holds("worth_high(a*) > 0.4%"), 1);
    }

    #[test]
    fn functions_are_named_as_reports_print_them_or_as_files_do() {
        let mut found = found();
        let render = found.factors.iter_mut().find(|of| of.name == "render").unwrap();
        render.name = "_ZN2ns6renderB5cxx11Ei".to_owned();
        for name in ["ns::render[abi:cxx11](int)", "ns::render[abi:cxx11]", "_ZN2ns6renderB5cxx11Ei", "ns::*"]
        {
            let condition = format!("worth({name}) > 0%").parse::<Condition>().unwrap();
            assert_eq!(condition.holds(&found, None).unwrap().of.len(), 1, "{name}");
        }
    }

    #[test]
    fn what_does_not_stand_is_no_answer() {
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
        assert_eq!((holds.of, holds.unknown), (vec!["render".to_owned()], vec!["a::<b>::c".to_owned()]));
    }

    #[test]
    fn changes_are_of_two() {
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
            text.parse::<Condition>().unwrap().holds(&after.findings, Some(&comparison)).unwrap().of.len()
        };
        assert_eq!(holds("worth_change(render) > 2%"), 1);
        assert_eq!(holds("worth_change(render) > 4%"), 0);
        assert_eq!(holds("worth(render) > 4%"), 1);
    }

    proptest! {
        #[test]
        fn a_star_stands_for_anything(
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
