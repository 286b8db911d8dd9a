//! The answer of an experiment, in a sentence or two.

use super::{
    factor::{Factor, FactorKind},
    verdict::Verdict,
};
use crate::{demangle::for_people, printable::printable_name};

/// Functions that are named.
const NAMED: usize = 3;

/// What is to be said first. `factors` are in their order; `withheld` is why no verdict stands.
pub(super) fn sentence(factors: &[&Factor], withheld: Option<&str>, aborted: Option<&str>) -> String {
    let with = |verdict| factors.iter().copied().filter(move |of| of.verdict == verdict);
    let early = if aborted.is_some() { " The experiment ended early." } else { "" };
    if let Some(why) = withheld {
        return format!("No verdict: {why}.{early}");
    }
    if !factors.is_empty() && with(Verdict::Dismissed).count() == factors.len() {
        return format!(
            "Nothing was experimented on: each of the functions takes too little time, or was not \
             called.{early}"
        );
    }
    let named: Vec<String> = with(Verdict::Matters).take(NAMED).map(named).collect();
    let count = with(Verdict::Matters).count();
    let together = with(Verdict::Jointly).filter(|of| of.kind != FactorKind::Group).count();
    let mut text = match count {
        0 if together == 1 => "No function is shown to matter alone; 1 does with others".to_owned(),
        0 if together > 0 => format!("No function is shown to matter alone; {together} do together"),
        0 => "No function is shown to matter".to_owned(),
        1 => format!("{} matters", named.join("")),
        _ if count > NAMED => format!("{} and {} more matter", named.join(", "), count - NAMED),
        _ => format!("{} matter", and(&named)),
    };
    if count > 0 && together > 0 {
        text += &format!(", and {together} more {} with others", if together == 1 { "does" } else { "do" });
    }
    let not = with(Verdict::DoesNotMatter).count();
    let open =
        with(Verdict::Undecided).filter(|of| of.kind != FactorKind::Group || of.worth.is_some()).count();
    match (not, open) {
        (0, 0) => text.push('.'),
        (not, 0) => text += &format!("; {} shown not to.", counted(not)),
        (0, open) => text += &format!("; {} undecided.", counted(open)),
        (not, open) => text += &format!("; {} shown not to, {open} undecided.", counted(not)),
    }
    text + early
}

fn named(factor: &Factor) -> String {
    let for_people = (factor.kind == FactorKind::Native).then(|| for_people(&factor.name)).flatten();
    let name = printable_name(for_people.as_ref().unwrap_or(&factor.name));
    match (factor.worth, factor.worth_low.zip(factor.worth_high)) {
        (Some(worth), Some((low, high))) => format!(
            "{name} (worth at most {:.1} % of a unit's time, {:.1} to {:.1})",
            worth * 100.0,
            low * 100.0,
            high * 100.0
        ),
        _ => name,
    }
}

fn and(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.join(""),
    }
}

fn counted(count: usize) -> String {
    if count == 1 { "1 function is".to_owned() } else { format!("{count} functions are") }
}
