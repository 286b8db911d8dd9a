//! What an experiment found, as a table for people.

use super::{
    further,
    notes::{dismissed, looked_at, notes},
    words::{name_and_place, own, sensitivity, verdict, worth},
};
use crate::{
    experiment::{
        analysis::{factor::Factor, findings::Findings},
        record::Experiment,
    },
    stats::table::aligned,
};

/// Functions that are shown in the table.
pub const SHOWN: usize = 30;

/// The report: the answer, the table, and what readers should know.
pub fn render(Experiment { measured, findings }: &Experiment) -> String {
    let mut text = format!("{}\n\n", findings.verdict);
    text += &table(findings, SHOWN);
    if !findings.further.is_empty() {
        text += &format!("\n{}", aligned(further::rows(&findings.further)));
    }
    text.push('\n');
    for note in notes(measured, findings) {
        text += &format!("{note}\n");
    }
    text
}

/// What stands above the columns.
pub(super) const HEADING: [&str; 6] =
    ["function", "calls/unit", "own/unit", "sensitivity", "worth at most", "verdict"];

/// The functions, the ones that are worth most first.
pub fn table(findings: &Findings, shown: usize) -> String {
    let mut rows = vec![HEADING.map(str::to_owned).to_vec()];
    rows.extend(looked_at(findings).take(shown).map(|factor| cells(factor).to_vec()));
    let mut text = aligned(rows);
    let more = looked_at(findings).count().saturating_sub(shown);
    if more > 0 {
        text += &format!("… {more} more functions\n");
    }
    text + &dismissed(findings).map(|line| line + "\n").unwrap_or_default()
}

/// What stands below [`HEADING`].
pub(super) fn cells(factor: &Factor) -> [String; 6] {
    [
        name_and_place(factor),
        format!("{:.1}", factor.calls_per_unit),
        own(factor),
        sensitivity(factor),
        worth(factor),
        verdict(factor),
    ]
}
