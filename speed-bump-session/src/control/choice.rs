//! Which doses of a session a line changes.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::{
    demangle::names_of,
    policy::{Dose, PolicyTable, Selection},
    probe::plan::SelectedFunction,
    session::{SessionError, controls::Controls, known::KnownFunctions},
    targets::{
        LineErrors, ParsedTargets, Target, TargetChange, TargetIndex, TargetKind, Targets, TargetsError,
    },
};

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Targets that the line names: what becomes known later has the dose too.
    pub targets: usize,
    /// Functions that are known now.
    pub functions: usize,
    /// The delay that they have now.
    pub delay_ns: Vec<u64>,
    /// From when on (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// It cannot be read.
    #[error("{}", reasons(.0))]
    Line(LineErrors),
    /// It cannot be read.
    #[error(transparent)]
    Targets(TargetsError),
    /// There is no such target.
    #[error("none of the session's targets is `{pattern}`; `sessions` lists them")]
    NoTarget {
        /// The pattern.
        pattern: String,
    },
    /// What is excluded stays as it was.
    #[error("lines that exclude functions cannot change while a session runs: attach again")]
    Exclusions,
    /// One line, and one target.
    #[error("one pattern at a time, which selects functions and excludes none")]
    NotOne,
    /// It says no dose.
    #[error("what is to change? give delay=TIME, frequency=N or both")]
    NoDose,
    /// Nothing in the session is like this.
    #[error(
        "`{pattern}` is none of the session's targets, and selects none of the {known} functions that they \
         have selected so far; `--add` makes it one of them"
    )]
    Nothing {
        /// The pattern.
        pattern: String,
        /// How many functions there are.
        known: usize,
    },
    /// The session refuses.
    #[error(transparent)]
    Session(#[from] SessionError),
}

fn reasons(errors: &LineErrors) -> String {
    errors.lines().join("; ")
}

/// Sets the doses that a line gives: of the targets that have its pattern, or else of the functions that it
/// selects.
///
/// # Errors
/// Nothing has changed then.
pub fn set(controls: &Controls, line: &str) -> Result<Changed, ChoiceError> {
    let wanted = controls.decide_kinds(parse(line)?)?;
    let Some((_, target)) = wanted.iter().next().filter(|_| wanted.len() == 1) else {
        return Err(ChoiceError::NotOne);
    };
    if target.delay.is_none() && target.frequency.is_none() {
        return Err(ChoiceError::NoDose);
    }
    let (known, policies) = (controls.known(), controls.policies());
    let chosen = choose(&wanted, target, &controls.targets(), &known, &policies);
    if chosen.changes.is_empty() {
        return Err(ChoiceError::Nothing { pattern: target.pattern.clone(), known: known.len() });
    }
    let mut delays: Vec<u64> = chosen.changes.iter().map(|(_, dose)| dose.delay.0).collect();
    delays.sort_unstable();
    delays.dedup();
    let at_ns = controls.set(&chosen.changes)?.at.0;
    Ok(Changed { targets: chosen.targets, functions: chosen.functions, delay_ns: delays, at_ns })
}

/// Adds the target that a line is. Without a dose it has that of the session's other targets.
///
/// # Errors
/// Nothing has changed then.
pub fn add(controls: &Controls, line: &str) -> Result<Changed, ChoiceError> {
    let wanted = controls.decide_kinds(parse(line)?)?;
    let Some((_, target)) = wanted.iter().next().filter(|_| wanted.len() == 1) else {
        return Err(ChoiceError::NotOne);
    };
    let index = TargetIndex(u32::try_from(controls.targets().len()).unwrap_or(u32::MAX));
    let at = controls.change_targets(TargetChange { add: vec![target.clone()], drop: Vec::new() })?.at;
    let functions = controls.known().iter().filter(|(_, function)| function.target == index).count();
    let delay_ns = vec![controls.policies().dose(index).delay.0];
    Ok(Changed { targets: 1, functions, delay_ns, at_ns: at.0 })
}

/// Drops the targets with this pattern or id.
///
/// # Errors
/// Nothing has changed then.
pub fn drop(controls: &Controls, pattern: &str) -> Result<Changed, ChoiceError> {
    let targets = controls.targets();
    let named = |of: &Target| !of.is_dropped && (of.pattern == pattern || of.id == pattern);
    let drop: Vec<TargetIndex> = targets.iter().filter(|(_, of)| named(of)).map(|(index, _)| index).collect();
    if drop.is_empty() {
        return Err(ChoiceError::NoTarget { pattern: pattern.to_owned() });
    }
    let is_dropped = |function: &SelectedFunction| drop.contains(&function.target);
    let functions = controls.known().iter().filter(|(_, function)| is_dropped(function)).count();
    let targets = drop.len();
    let at = controls.change_targets(TargetChange { add: Vec::new(), drop })?.at;
    Ok(Changed { targets, functions, delay_ns: vec![0], at_ns: at.0 })
}

/// What came of reading targets again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reread {
    /// Targets that came.
    pub added: usize,
    /// Targets that went.
    pub dropped: usize,
    /// Targets that have another dose now.
    pub changed: usize,
}

/// Has a session do what these targets say, which it began with in another form. The same pattern is the same
/// target, and has the dose that its line says now.
///
/// # Errors
/// Exclusions that changed, or what the session refuses. Where doses are refused, targets have come and gone.
pub fn replace(controls: &Controls, wanted: ParsedTargets) -> Result<Reread, ChoiceError> {
    let wanted = &controls.decide_kinds(wanted)?;
    let targets = controls.targets();
    let texts = |targets: &Targets| {
        targets.exclusions().iter().map(|exclusion| exclusion.text.clone()).collect::<Vec<_>>()
    };
    if texts(&targets) != texts(wanted) {
        return Err(ChoiceError::Exclusions);
    }
    let (change, stay) = targets.change_to(wanted);
    let (added, dropped) = (change.add.len(), change.drop.len());
    if added + dropped > 0 {
        controls.change_targets(change)?;
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

fn parse(line: &str) -> Result<ParsedTargets, ChoiceError> {
    ParsedTargets::parse("set", line.as_bytes(), false).map_err(|error| match error {
        TargetsError::Lines(errors) => ChoiceError::Line(errors),
        TargetsError::NoTarget(_) => ChoiceError::NotOne,
        error => ChoiceError::Targets(error),
    })
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    changes: Vec<(Selection, Dose)>,
    targets: usize,
    functions: usize,
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
    let named = |of: &Target| of.pattern == target.pattern || of.id == target.pattern;
    let mut chosen = Chosen::default();
    for (index, _) in targets.iter().filter(|(_, of)| !of.is_dropped && named(of)) {
        chosen.changes.push((Selection::Target(index), changed(policies.dose(index))));
        chosen.targets += 1;
    }
    let by_target = chosen.targets > 0;
    // A name of some function to the letter is no pattern, as where targets are resolved.
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
        // Those that follow their target have its dose already.
        if !by_target || policies.own_number(function).is_some() {
            chosen.changes.push((Selection::Function(function.clone()), changed(policies.of(function))));
        }
    }
    chosen
}

/// Whether a native function is one that a target names to the letter.
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

    /// What a line changes where target 1 has dose 2 us, every 3rd, and one of its functions its own.
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
        // Of this name, and of another kind.
        assert_eq!(chosen("*:fg delay=1us"), Chosen::default());
        assert_eq!(chosen("usdt:*:p:fg delay=1us"), Chosen::default());
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (line, word) in [("nonsense", "set"), ("", "one pattern"), ("!*:f", "one pattern")] {
            assert!(parse(line).unwrap_err().to_string().contains(word), "{line}");
        }
    }
}
