//! A report in Markdown, for a pull request or an issue (GitHub Flavored Markdown, tables).

use super::{
    compare::{self, Comparison},
    further,
    notes::{dismissed, folded, notes},
    sections::{Section, more, text_sections},
    text::{HEADING, SHOWN, cells},
    waits,
};
use crate::{printable::printable, record::Experiment};

/// The report: the answer, the table, and collapsed notes.
pub fn render(Experiment { measured, findings }: &Experiment) -> String {
    let mut text = format!("{}\n\n", code(&findings.verdict, false));
    for Section { title, factors } in text_sections(findings, SHOWN) {
        text += &title.map(|title| format!("\n{title}:\n\n")).unwrap_or_default();
        text += &table(&HEADING.map(str::to_owned), factors.into_iter().map(|of| cells(of).to_vec()));
    }
    for line in [more(findings, SHOWN), folded(findings)].into_iter().flatten() {
        text += &format!("\n{line}\n");
    }
    text +=
        &waits::line(&measured.waits).map(|line| format!("\n{}\n", code(&line, false))).unwrap_or_default();
    if !findings.further.is_empty() {
        let rows = further::rows(&findings.further);
        if let Some((heading, rows)) = rows.split_first() {
            text += &format!("\n{}", table(heading, rows.iter().cloned()));
        }
    }
    let lines: Vec<String> = dismissed(findings).into_iter().chain(notes(measured, findings)).collect();
    text + &format!("\n<details><summary>How it was measured</summary>\n\n{}\n</details>\n", block(&lines))
}

/// A comparison of two experiments.
pub fn render_comparison(comparison: &Comparison) -> String {
    let mut text = format!("{}\n\n", code(&compare::text::answer(comparison), false));
    for difference in &comparison.differences {
        let word = if difference.fatal { "not comparable" } else { "note" };
        text += &format!("- {word}: {}\n", code(&difference.text, false));
    }
    text += &format!("\n{}\n", compare::text::unit(comparison));
    let rows = compare::text::rows(comparison);
    if let Some((heading, rows)) = rows.split_first() {
        text += &format!("\n{}", table(heading, rows.iter().cloned()));
    }
    text + &compare::text::more(comparison).map(|line| format!("\n{line}\n")).unwrap_or_default()
}

/// A table: the first column to the left, the others to the right. Cells are code, because they may hold
/// names from outside.
fn table(heading: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let marks: Vec<String> =
        (0..heading.len()).map(|column| if column == 0 { ":--" } else { "--:" }.to_owned()).collect();
    let mut text = line(heading) + &line(&marks);
    rows.for_each(|row| {
        let cells: Vec<String> = row.iter().map(|cell| code(cell, true)).collect();
        text += &line(&cells);
    });
    text
}

/// A code span, in which text has no special meaning. Names come from outside, and GitHub turns more text
/// into links and mentions than Markdown does. In a code span (CommonMark 0.31, 6.1) only `|` is special,
/// within a table (GitHub Flavored Markdown, 4.10).
fn code(text: &str, in_table: bool) -> String {
    let text = printable(text);
    if text.is_empty() {
        return text;
    }
    let text = if in_table { text.replace('|', r"\|") } else { text };
    let fence = "`".repeat(longest_run(&text) + 1);
    let pad = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// A code block.
fn block(lines: &[String]) -> String {
    let text: String = lines.iter().map(|line| printable(line) + "\n").collect();
    let fence = "`".repeat(longest_run(&text).max(2) + 1);
    format!("{fence}text\n{text}{fence}")
}

/// The longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_code_spans() {
        assert_eq!(code("a|b\n<img> [x](y) @me", true), r"`a\|b\n<img> [x](y) @me`");
        assert_eq!(code("a``b`", false), "``` a``b` ```");
        assert_eq!(code("", true), "");
        assert_eq!(block(&["a ```` b".to_owned()]), "`````text\na ```` b\n`````");
    }

    #[test]
    fn tables_have_a_line_of_marks() {
        let heading = ["function", "own"].map(str::to_owned);
        let row = ["f", "1us"].map(str::to_owned).to_vec();
        let expected = "| function | own |\n| :-- | --: |\n| `f` | `1us` |\n";
        assert_eq!(table(&heading, std::iter::once(row)), expected);
    }
}
