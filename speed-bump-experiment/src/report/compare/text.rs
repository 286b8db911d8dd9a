//! A comparison as text.

use super::{Change, Changed, Comparison};
use crate::{
    analysis::verdict::Verdict,
    printable::{columns as columns_of, printable, printable_name},
    report::table::{aligned, shortened},
    report::words::{fixed, name_and_place_of, nothing, short_verdict, some_of, time},
};

/// Functions in the table.
const SHOWN: usize = 30;

/// The comparison as printable text. Names are cut to fit into `columns`.
pub fn render(comparison: &Comparison, columns: usize) -> String {
    let mut text = String::new();
    for difference in &comparison.differences {
        let word = if difference.fatal { "not comparable" } else { "note" };
        text += &format!("{word}: {}\n", printable(&difference.text));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text += &format!("{}\n\n", unit(comparison));
    text += &fitted(rows(comparison), columns);
    text += &more(comparison).map(|line| line + "\n").unwrap_or_default();
    text + &format!("\n{}\n", answer(comparison))
}

/// The table. If it does not fit, names are cut, and sensitivities and own times left out.
fn fitted(rows: Vec<Vec<String>>, columns: usize) -> String {
    let fits = |table: &String| table.lines().all(|line| columns_of(line) <= columns);
    let [name, worth, change, verdict] = [0, 1, 2, 6];
    let few = |row: &Vec<String>| {
        [name, worth, change, verdict].into_iter().filter_map(|column| row.get(column).cloned()).collect()
    };
    let table = aligned(rows.clone());
    if fits(&table) {
        return table;
    }
    let table = aligned(shortened(rows.clone(), columns));
    if fits(&table) { table } else { aligned(shortened(rows.iter().map(few).collect(), columns)) }
}

/// A line with the time per unit.
pub(in crate::report) fn unit(comparison: &Comparison) -> String {
    format!("a unit takes {}", times(&comparison.time_per_unit_ns))
}

/// A line with the number of functions that are not shown; `None` if all are.
pub(in crate::report) fn more(comparison: &Comparison) -> Option<String> {
    let more = comparison.functions.len().saturating_sub(SHOWN);
    (more > 0).then(|| format!("… {more} more functions"))
}

/// The table, with its heading.
pub(in crate::report) fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let heading = ["function", "worth, %", "change", "sensitivity", "change", "own/unit", "verdict"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(comparison.functions.iter().take(SHOWN).map(row));
    rows
}

/// The changes in a sentence.
pub(in crate::report) fn answer(comparison: &Comparison) -> String {
    let is_new = |of: &&Changed| of.verdict_before.is_none() && of.verdict_after == Some(Verdict::Matters);
    let new: Vec<String> =
        comparison.functions.iter().filter(is_new).map(|of| printable_name(&of.name)).collect();
    let also = match new.as_slice() {
        [] => String::new(),
        [one] => format!(" {one} was not there before, and matters."),
        [first, rest @ ..] => {
            format!(" {first} and {} more were not there before, and matter.", rest.len())
        }
    };
    let shown: Vec<&Changed> = comparison.functions.iter().filter(|of| of.worth.is_shown()).collect();
    match shown.as_slice() {
        [] => format!("No change of worth is shown.{also}"),
        shown => {
            let names: Vec<String> = shown.iter().map(|of| printable_name(&of.name)).collect();
            format!("The worth of {} changed; a * marks changes that are shown.{also}", some_of(&names, 3))
        }
    }
}

fn row(of: &Changed) -> Vec<String> {
    let name = name_and_place_of(&of.name, of.file.as_deref(), of.line);
    let percent = |value: f64| fixed(value * 100.0, 1);
    let plain = |value: f64| fixed(value, 2);
    vec![
        name,
        both(&of.worth, percent),
        change(&of.worth, percent),
        both(&of.sensitivity, plain),
        change(&of.sensitivity, plain),
        times(&of.own_ns_per_unit),
        verdicts(of.verdict_before, of.verdict_after),
    ]
}

/// `12.0 → 4.1`.
fn both(change: &Change, shown: impl Fn(f64) -> String) -> String {
    let [before, after] = [change.before, change.after].map(|of| of.map_or_else(nothing, &shown));
    format!("{before} → {after}")
}

/// `-7.9 [-8.4, -7.4] *`.
fn change(change: &Change, shown: impl Fn(f64) -> String) -> String {
    let signed = |value: f64| if value > 0.0 { format!("+{}", shown(value)) } else { shown(value) };
    let mark = if change.is_shown() { " *" } else { "" };
    match (change.change, change.low.zip(change.high)) {
        (Some(by), Some((low, high))) => format!("{} [{}, {}]{mark}", signed(by), shown(low), shown(high)),
        (Some(by), None) => signed(by),
        (None, _) => nothing(),
    }
}

fn times(change: &Change) -> String {
    let mark = if change.is_shown() { " *" } else { "" };
    both(change, time) + mark
}

fn verdicts(before: Option<Verdict>, after: Option<Verdict>) -> String {
    let [before, after] = [before, after].map(|of| of.map_or("not there", short_verdict));
    if before == after { before.to_owned() } else { format!("{before} → {after}") }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{compare, tests::experiment},
        *,
    };

    #[test]
    fn changes_have_intervals() {
        let text = render(&compare(&experiment(3e5, 1), &experiment(1e5, 2)), usize::MAX);
        assert!(text.contains("The worth of render changed"), "{text}");
        assert!(text.contains("300us → 100us"), "{text}");
        assert!(
            text.lines().any(|line| line.starts_with("render (app.py:7)") && line.contains("] *")),
            "{text}"
        );
    }

    #[test]
    fn the_table_fits_a_narrow_terminal() {
        let comparison = compare(&experiment(3e5, 1), &experiment(1e5, 2));
        let widest =
            |most| render(&comparison, most).lines().filter(|line| line.contains("→ ")).map(columns_of).max();
        let all = widest(usize::MAX);
        assert!(all > Some(100), "{all:?}");
        for most in [100, 80] {
            let text = render(&comparison, most);
            let row = text.lines().find(|line| line.starts_with("render")).unwrap_or_default();
            assert!(row.contains(" *") && columns_of(row) <= most, "{most}: {text}");
        }
    }

    #[test]
    fn changes_have_signs() {
        let of = |change: f64| Change { change: Some(change), ..Change::default() };
        let shown = |value: f64| fixed(value, 1);
        assert_eq!([0.0, 0.04, 1.0, -1.0].map(|by| change(&of(by), shown)), ["0.0", "+0.0", "+1.0", "-1.0"]);
    }
}
