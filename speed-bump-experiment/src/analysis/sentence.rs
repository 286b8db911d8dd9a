//! The answer of an experiment, in a sentence or two.

use super::{
    factor::{Factor, FactorKind},
    thread::ThreadFinding,
    verdict::Verdict,
};
use crate::{demangle::for_people, printable::printable_name};

/// The most functions that are named.
const NAMED: usize = 3;
/// From this share on, the sentence says "all".
const ALL: f64 = 0.995;

/// The answer, and what to do with it. `factors` are in the order of the report; `withheld` is the reason why
/// there is no verdict; `whole` names what worths are shares of.
pub(super) fn sentence(
    factors: &[Factor],
    threads: &[ThreadFinding],
    withheld: Option<&str>,
    aborted: Option<&str>,
    whole: &str,
) -> String {
    let with = |verdict| factors.iter().filter(move |of| of.verdict == verdict);
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
    let matter: Vec<String> = with(Verdict::Matters).take(NAMED).map(|of| named(of, whole)).collect();
    let count = with(Verdict::Matters).count();
    let pace = threads.iter().find(|of| of.sets_pace);
    let mut text = match (count, pace) {
        (0, Some(thread)) => sets_pace(thread),
        (0, None) => "No function is shown to matter".to_owned(),
        (1, _) => format!("{} matters", matter.join("")),
        _ if count > NAMED => format!("{} and {} more matter", matter.join(", "), count - NAMED),
        _ => format!("{} matter", and(&matter)),
    };
    let not = with(Verdict::DoesNotMatter).count();
    let open: Vec<&Factor> =
        with(Verdict::Undecided).filter(|of| of.kind != FactorKind::Group || of.worth.is_some()).collect();
    match (not, open.len()) {
        (0, 0) => text.push('.'),
        (not, 0) => text += &format!("; {} shown not to.", counted(not)),
        (0, open) => text += &format!("; {} undecided.", counted(open)),
        (not, open) => text += &format!("; {} shown not to, {open} undecided.", counted(not)),
    }
    if let Some(more) = at_most(&open) {
        text += &more;
    }
    text + early
}

/// `The thread 4711 (model) sets the pace: 1.08 [1.00, 1.16] of all work on it shows in a unit's time`.
fn sets_pace(thread: &ThreadFinding) -> String {
    let mut text = format!(
        "The {} {}: each microsecond more of work there costs {:.2} us [{:.2}, {:.2}] a unit",
        thread.who(),
        thread.does(),
        thread.sensitivity,
        thread.low,
        thread.high
    );
    if let Some(worth) = thread.worth {
        text += &format!(", and together its functions are worth at most {} of a unit's time", share(worth));
    }
    text
}

/// What undecided functions are worth at most.
fn at_most(open: &[&Factor]) -> Option<String> {
    let most = Factor::worth_bound(open)?;
    let each = if open.len() == 1 { "It is" } else { "Each of those is" };
    Some(format!(" {each} worth {} at most, which more time would narrow.", share(most)))
}

fn share(worth: f64) -> String {
    if worth >= ALL { "all".to_owned() } else { format!("{:.1} %", worth.max(0.0) * 100.0) }
}

fn named(factor: &Factor, whole: &str) -> String {
    let for_people = (factor.kind == FactorKind::Native).then(|| for_people(&factor.name)).flatten();
    let name = printable_name(for_people.as_ref().unwrap_or(&factor.name));
    match (factor.worth, factor.worth_low.zip(factor.worth_high)) {
        (Some(_), Some((low, _))) if low >= ALL => format!("{name} (worth up to all of {whole})"),
        (Some(worth), Some((low, high))) => format!(
            "{name} (worth at most {:.1} % of {whole}, {:.1} to {:.1})",
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
