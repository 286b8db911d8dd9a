//! Decides which doses of a session a line changes, and which targets match a pattern.

use std::num::NonZeroU64;

use super::RequestError;
use crate::{
    demangle::names_of,
    policy::{Dose, PolicyTable, Selection},
    probe::plan::SelectedFunction,
    session::{SessionError, controls::Controls, known::KnownFunctions},
    targets::{ParsedTargets, Target, TargetIndex, TargetKind, Targets, TargetsError},
};

/// The error for a line that is not one target.
pub(super) const NOT_ONE: &str = "one pattern at a time, which selects functions and excludes none";

/// The doses that a line sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) changes: Vec<(Selection, Dose)>,
    /// The number of targets that the line names.
    pub(crate) targets: usize,
    /// The number of functions that the session knows now.
    pub(crate) functions: usize,
}

/// The doses that a line sets. If targets have the line's pattern, the line sets their doses; otherwise it
/// sets the doses of the functions that it selects.
///
/// # Errors
/// The line sets no dose, or matches nothing in the session.
pub(crate) fn by_line(controls: &Controls, line: &str) -> Result<Chosen, RequestError> {
    let parsed = parse(line)?;
    let targets = controls.targets();
    let has_pattern = |wanted: &Targets| {
        wanted.iter().any(|(_, wanted)| targets.iter().any(|(_, of)| is_meant(of, wanted)))
    };
    // If the line is the pattern of a target, the user means that target, whatever the pattern selects.
    let as_written = parsed.clone().decide(|_| false);
    let wanted = if has_pattern(&as_written) { as_written } else { controls.decide_kinds(parsed)? };
    let Some((_, target)) = wanted.iter().next().filter(|_| wanted.len() == 1) else {
        return Err(RequestError::usage(NOT_ONE));
    };
    if target.delay.is_none() && target.frequency.is_none() {
        return Err(RequestError::usage("what is to change? give delay=TIME, frequency=N or both"));
    }
    let (known, policies) = (controls.known(), controls.policies());
    let chosen = choose(&wanted, target, &targets, &known, &policies);
    if chosen.changes.is_empty() {
        let why = match target.caller {
            Some(_) => String::new(),
            None => format!(
                ", and it selects none of the {} functions that they have selected so far",
                known.len()
            ),
        };
        return Err(RequestError::usage(format!(
            "no target of the session matches `{}`{why}; `--add` adds it as a target",
            target.pattern_and_caller()
        )));
    }
    Ok(chosen)
}

/// The targets with this text: their pattern, their pattern and caller, or their id equals it.
///
/// # Errors
/// No target has this text.
pub(crate) fn named(targets: &Targets, pattern: &str) -> Result<Vec<TargetIndex>, RequestError> {
    let named = targets.iter().filter(|(_, of)| is_named(of, pattern));
    let named: Vec<TargetIndex> = named.map(|(index, _)| index).collect();
    if named.is_empty() {
        return Err(RequestError::usage(format!(
            "no target of the session matches `{pattern}`; `sessions` lists them"
        )));
    }
    Ok(named)
}

fn is_named(target: &Target, pattern: &str) -> bool {
    let is_it =
        || target.pattern == pattern || target.id == pattern || target.pattern_and_caller() == pattern;
    !target.is_dropped && is_it()
}

/// Whether a line means the target. If the line names a caller, the target must have the same caller.
fn is_meant(target: &Target, line: &Target) -> bool {
    let is_callers = line.caller.is_none() || line.caller == target.caller;
    is_callers && is_named(target, &line.pattern)
}

/// The result of rereading targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// The added targets.
    pub added: usize,
    /// The dropped targets.
    pub dropped: usize,
    /// Targets that have another dose than before.
    pub changed: usize,
}

/// Gives a running session these targets in place of its own. A target whose pattern is unchanged stays, and
/// gets the dose in its new line.
///
/// # Errors
/// The exclusions have changed, or the session refuses the change. If the session refuses only the doses, it
/// has already added and dropped targets.
pub fn replace(controls: &Controls, wanted: ParsedTargets) -> Result<Reread, RequestError> {
    let wanted = &controls.decide_kinds(wanted)?;
    let targets = controls.targets();
    let texts = |targets: &Targets| {
        targets.exclusions().iter().map(|exclusion| exclusion.text.clone()).collect::<Vec<_>>()
    };
    if texts(&targets) != texts(wanted) {
        return Err(RequestError::usage(
            "lines that exclude functions cannot change while a session runs: attach again",
        ));
    }
    let (change, stay) = targets.change_to(wanted);
    let (added, dropped) = (change.add.len(), change.drop.len());
    if added + dropped > 0 {
        match controls.change_targets(change) {
            // The session has the targets, and has warned about this.
            Err(SessionError::Uncovered { .. }) => {}
            changed => drop(changed?),
        }
    }
    let policies = controls.policies();
    let doses = stay.iter().map(|(index, target)| (*index, policies.begins_with(target)));
    let changed = doses.filter(|(index, dose)| policies.dose(*index) != *dose);
    let changed: Vec<_> = changed.map(|(index, dose)| (Selection::Target(index), dose)).collect();
    if !changed.is_empty() {
        controls.set(&changed)?;
    }
    Ok(Reread { added, dropped, changed: changed.len() })
}

fn parse(line: &str) -> Result<ParsedTargets, RequestError> {
    ParsedTargets::parse("set", line.as_bytes(), false).map_err(|error| match error {
        TargetsError::NoTarget(_) => RequestError::usage(NOT_ONE),
        error => error.into(),
    })
}

fn choose(
    wanted: &Targets,
    target: &Target,
    targets: &Targets,
    known: &KnownFunctions,
    policies: &PolicyTable,
) -> Chosen {
    let changed = |dose: Dose| Dose {
        delay: target.delay.unwrap_or(dose.delay),
        frequency: target.frequency.map_or(dose.frequency, NonZeroU64::get),
    };
    let named = |of: &Target| is_meant(of, target);
    let mut chosen = Chosen::default();
    for (index, _) in targets.iter().filter(|(_, of)| named(of)) {
        chosen.changes.push((Selection::Target(index), changed(policies.dose(index))));
        chosen.targets += 1;
    }
    let by_target = chosen.targets > 0;
    if !by_target && target.caller.is_some() {
        // A function has one dose, which does not depend on its caller.
        return chosen;
    }
    // If a native function has exactly this name, the line is a name and not a pattern, as in a targets file.
    let native = known
        .iter()
        .filter(|(_, function)| targets.get(function.target).is_some_and(|of| of.kind == TargetKind::Native));
    let is_literal = target.kind == TargetKind::Native
        && target.name.exact().is_none()
        && native.map(|(_, function)| function).any(|function| is_called(function, target));
    for (_, function) in known.iter() {
        let of = targets.get(function.target).filter(|of| !of.is_dropped);
        let Some(of) = of else { continue };
        if by_target && !named(of) || !by_target && !selects(wanted, of.kind, function) {
            continue;
        }
        if !by_target && is_literal && !is_called(function, target) {
            continue;
        }
        chosen.functions += 1;
        // A function without its own dose follows its target, and this target has got the dose.
        if !by_target || policies.own_number(function).is_some() {
            chosen
                .changes
                .push((Selection::Function(function.clone()), changed(policies.for_function(function))));
        }
    }
    chosen
}

/// Whether a line names this native function exactly.
fn is_called(function: &SelectedFunction, target: &Target) -> bool {
    let file = function.file.to_string_lossy();
    target.module.matches(&file) && names_of(&function.name).any(|name| *name == *target.name.as_str())
}

fn selects(wanted: &Targets, kind: TargetKind, function: &SelectedFunction) -> bool {
    let file = function.file.to_string_lossy();
    let selection = match kind {
        TargetKind::Python => wanted.python_in(&file).select(&function.name),
        TargetKind::Native => {
            let names: Vec<Box<str>> = names_of(&function.name).collect();
            wanted.native_in(&file).select(names.iter().map(AsRef::as_ref))
        }
        TargetKind::Usdt => match function.name.split_once(':') {
            Some((provider, name)) => wanted.usdt_in(&file).select(provider, name),
            None => return false,
        },
    };
    selection.winner.is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{engine::EngineChoice, targets::TargetIndex, units::Nanos};

    fn parsed(text: &str) -> Targets {
        ParsedTargets::parse("t", text.as_bytes(), false).unwrap().decide(|_| false)
    }

    fn function(target: u32, file: &str, name: &str) -> SelectedFunction {
        SelectedFunction { target: TargetIndex(target), name: name.into(), file: file.into(), line: None }
    }

    fn dose(delay: u64, frequency: u64) -> Dose {
        Dose { delay: Nanos(delay), frequency }
    }

    /// The changes that a line makes. Target 1 has the dose 2 us, every 3rd call, and one of its functions
    /// has its own dose.
    fn chosen(line: &str) -> Chosen {
        let targets = parsed("native:*/lib.so:f*\n*/app.py:* delay=2us frequency=3 id=app\n");
        let mut known = KnownFunctions::default();
        for (target, file, name) in
            [(0, "/lib.so", "f"), (0, "/lib.so", "fg"), (1, "/app.py", "A.run"), (1, "/app.py", "own")]
        {
            known.enter(function(target, file, name));
        }
        let mut policies = PolicyTable::new(&targets, dose(0, 1), EngineChoice::Auto);
        let own = Selection::Function(function(1, "/app.py", "own"));
        policies.set(&own, dose(9, 1)).unwrap();
        let wanted = parse(line).unwrap().decide(|_| false);
        let target = wanted.iter().next().unwrap().1;
        choose(&wanted, target, &targets, &known, &policies)
    }

    #[test]
    fn a_pattern_of_the_session_changes_its_target_and_all_its_functions() {
        let own = Selection::Function(function(1, "/app.py", "own"));
        let expected = |target, own_dose| Chosen {
            changes: vec![(Selection::Target(TargetIndex(1)), target), (own.clone(), own_dose)],
            targets: 1,
            functions: 2,
        };
        assert_eq!(chosen("*/app.py:* delay=5us"), expected(dose(5_000, 3), dose(5_000, 1)));
        assert_eq!(chosen("*/app.py:* frequency=7"), expected(dose(2_000, 7), dose(9, 7)));
    }

    #[test]
    fn another_pattern_changes_the_functions_that_it_selects() {
        let changed = chosen("native:*:fg delay=1us");
        let expected = (Selection::Function(function(0, "/lib.so", "fg")), dose(1_000, 1));
        assert_eq!((changed.changes, changed.targets, changed.functions), (vec![expected], 0, 1));
        let changed = chosen("*/app.py:A.* delay=1us");
        let expected = (Selection::Function(function(1, "/app.py", "A.run")), dose(1_000, 3));
        assert_eq!(changed.changes, [expected]);
        // The name is right, but the kind is another.
        assert_eq!(chosen("*:fg delay=1us"), Chosen::default());
        assert_eq!(chosen("usdt:*:p:fg delay=1us"), Chosen::default());
    }

    #[test]
    fn a_caller_means_the_target_for_that_caller() {
        let text = "*/app.py:f caller=a\n*/app.py:f caller=b\n*/app.py:f id=rest\n";
        let targets = parsed(text);
        let policies = PolicyTable::new(&targets, dose(0, 1), EngineChoice::Auto);
        let mut known = KnownFunctions::default();
        known.enter(function(0, "/app.py", "f"));
        let meant = |line: &str| {
            let wanted = parse(line).unwrap().decide(|_| false);
            let target = wanted.iter().next().unwrap().1;
            let chosen = choose(&wanted, target, &targets, &known, &policies);
            let of_target = |(selection, _): (Selection, Dose)| match selection {
                Selection::Target(index) => Some(index.0),
                Selection::Function(_) => None,
            };
            chosen.changes.into_iter().map(of_target).collect::<Vec<_>>()
        };
        assert_eq!(meant("*/app.py:f caller=b delay=1us"), [Some(1)]);
        assert_eq!(meant("*/app.py:f delay=1us"), [Some(0), Some(1), Some(2)]);
        assert_eq!(meant("*/app.py:f caller=c delay=1us"), [], "no function has a dose of its own for that");
        let dropped = |pattern| named(&targets, pattern).unwrap().iter().map(|of| of.0).collect::<Vec<_>>();
        assert_eq!((dropped("*/app.py:f caller=a"), dropped("rest")), (vec![0], vec![2]));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (line, word) in [("nonsense", "set"), ("", "one pattern"), ("!*:f", "one pattern")] {
            assert!(parse(line).unwrap_err().to_string().contains(word), "{line}");
        }
    }
}
