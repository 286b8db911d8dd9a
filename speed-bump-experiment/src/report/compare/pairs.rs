//! Matches the functions of two experiments.
//!
//! Functions match by kind, file and demangled name, because symbols contain a hash that changes with each
//! build. If a name occurs twice in a file, functions match by line. Functions that have moved to other lines
//! match in the order of their lines.

use std::{collections::BTreeMap, path::Path};

use crate::{
    analysis::factor::{Factor, FactorKind},
    report::words::whole_name,
};

/// A function in both experiments, or in one of them.
pub(super) type Pair<'a> = (Option<&'a Factor>, Option<&'a Factor>);

/// The pairs of all functions.
pub(super) fn pairs<'a>(before: &'a [Factor], after: &'a [Factor]) -> Vec<Pair<'a>> {
    type Key<'a> = (FactorKind, Option<&'a Path>, String);
    let mut alike: BTreeMap<Key<'a>, [Vec<&'a Factor>; 2]> = BTreeMap::new();
    for (side, factors) in [before, after].into_iter().enumerate() {
        for factor in factors {
            let key = (factor.kind, factor.file.as_deref(), whole_name(factor));
            alike.entry(key).or_default()[side].push(factor);
        }
    }
    alike.into_values().flat_map(|[before, after]| by_line(before, after)).collect()
}

/// Pairs functions of the same name: first those with the same line, then the others in the order of their
/// lines.
fn by_line<'a>(mut before: Vec<&'a Factor>, mut after: Vec<&'a Factor>) -> Vec<Pair<'a>> {
    before.sort_by_key(|of| of.line);
    after.sort_by_key(|of| of.line);
    let mut pairs: Vec<Pair<'a>> = Vec::new();
    before.retain(|factor| {
        let place = after.iter().position(|of| of.line == factor.line);
        pairs.extend(place.map(|place| (Some(*factor), Some(after.remove(place)))));
        place.is_none()
    });
    let length = before.len().max(after.len());
    pairs.extend((0..length).map(|place| (before.get(place).copied(), after.get(place).copied())));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::compare::{compare, tests::experiment};

    #[test]
    fn functions_of_the_same_name_match_by_line() {
        let mut before = experiment(3e5, 1);
        before.findings.factors.retain(|of| of.kind != FactorKind::Group);
        let mut after = before.clone();
        for (experiment, order) in [(&mut before, [10, 20]), (&mut after, [12, 22])] {
            for (factor, line) in experiment.findings.factors.iter_mut().zip(order) {
                (factor.name, factor.line) = ("make.<locals>.<lambda>".to_owned(), Some(line));
            }
        }
        after.findings.factors.reverse();
        let found = compare(&before, &after);
        assert_eq!(found.functions.len(), 2);
        assert!(found.functions.iter().all(|of| of.worth.change == Some(0.0)), "{found:?}");
    }

    #[test]
    fn symbols_of_two_builds_match() {
        let with = |hash: &str| {
            let mut of = experiment(3e5, 1);
            of.findings.factors.truncate(1);
            of.findings.factors[0].kind = FactorKind::Native;
            of.findings.factors[0].name = format!("_ZN3app6render17h{hash}E");
            of
        };
        let found = compare(&with("1111111111111111"), &with("2222222222222222"));
        assert_eq!(found.functions.len(), 1);
        assert_eq!(
            (found.functions[0].name.as_str(), found.functions[0].worth.change),
            ("app::render", Some(0.0))
        );
    }
}
