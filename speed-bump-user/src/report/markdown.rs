//! A report in Markdown, for a pull request or an issue (GitHub Flavored Markdown, tables).

use super::{
    compare::{self, Comparison},
    further,
    notes::{dismissed, looked_at, notes},
    text::{HEADING, SHOWN, cells},
};
use crate::{experiment::record::Experiment, printable::printable};

/// The report: the answer, the table, and what readers should know, folded up.
pub fn render(Experiment { measured, findings }: &Experiment) -> String {
    let mut text = format!("**{}**\n\n", escaped(&findings.verdict));
    let rows = looked_at(findings).take(SHOWN).map(|factor| cells(factor).to_vec());
    text += &table(&HEADING.map(str::to_owned), rows);
    let more = looked_at(findings).count().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("\n… {more} more functions\n");
    }
    if !findings.further.is_empty() {
        let rows = further::rows(&findings.further);
        if let Some((heading, rows)) = rows.split_first() {
            text += &format!("\n{}", table(heading, rows.iter().cloned()));
        }
    }
    text += "\n<details><summary>How it was measured</summary>\n\n";
    for note in dismissed(findings).into_iter().chain(notes(measured, findings)) {
        text += &format!("- {}\n", escaped(&note));
    }
    text + "\n</details>\n"
}

/// What changed from one experiment to another.
pub fn render_comparison(comparison: &Comparison) -> String {
    let mut text = format!("**{}**\n\n", escaped(&compare::text::answer(comparison)));
    for difference in &comparison.differences {
        let word = if difference.fatal { "not comparable" } else { "note" };
        text += &format!("- {word}: {}\n", escaped(&difference.text));
    }
    let rows = compare::text::rows(comparison);
    if let Some((heading, rows)) = rows.split_first() {
        text += &format!("\n{}", table(heading, rows.iter().cloned()));
    }
    text
}

/// The first column to the left, the others to the right.
fn table(heading: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let marks: Vec<&str> = (0..heading.len()).map(|column| if column == 0 { ":--" } else { "--:" }).collect();
    let mut text = line(heading) + &format!("| {} |\n", marks.join(" | "));
    rows.for_each(|row| text += &line(&row));
    text
}

/// Text that means nothing else in Markdown than what it says: names come from outside.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in printable(text).chars() {
        match c {
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            // Somebody would be told of it.
            '@' => escaped += "&#64;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' | '>' => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escaped("a|b\n<img src=x> [x](y) @me"), r"a\|b\\n&lt;img src=x\> \[x\](y) &#64;me");
    }

    #[test]
    fn tables_have_a_line_of_marks() {
        let heading = ["function", "own"].map(str::to_owned);
        let row = ["f", "1us"].map(str::to_owned).to_vec();
        let expected = "| function | own |\n| :-- | --: |\n| f | 1us |\n";
        assert_eq!(table(&heading, std::iter::once(row)), expected);
    }
}
