//! The report of an experiment as text.

mod forest;

use super::{
    further,
    notes::{dismissed, folded, notes},
    sections::{Section, more, text_sections},
    waits,
    words::{name_and_place, own, sensitivity, short_verdict, verdict, worth},
};
use crate::{
    analysis::{factor::Factor, findings::Findings, verdict::Verdict},
    printable::{columns, printable},
    record::Experiment,
    report::table::{aligned, shortened},
};

/// Functions in the table.
pub const SHOWN: usize = 30;

/// The style of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of a line. Names are cut to make room for numbers.
    pub columns: usize,
    /// Whether to use colours (ECMA-48, SGR).
    pub colour: bool,
}

impl Style {
    /// Plain text of any width, for files and pipes.
    pub const PLAIN: Self = Self { columns: usize::MAX, colour: false };

    /// Printable text in the colour of a verdict.
    fn coloured(self, verdict: Verdict, text: &str) -> String {
        let code = match verdict {
            Verdict::Matters => "1;31",
            Verdict::DoesNotMatter => "36",
            Verdict::Undecided | Verdict::Dismissed => "2",
        };
        self.with(code, text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The report: the answer, the table, the forest plot and notes. Printable, except for colours.
pub fn render(Experiment { measured, findings }: &Experiment, style: Style) -> String {
    let mut text = format!("{}\n\n", style.with("1", &printable(&findings.verdict)));
    text += &coloured_table(findings, style);
    text += &waits::line(&measured.waits).map(|line| format!("{}\n", printable(&line))).unwrap_or_default();
    let forest = forest::forest(findings, measured.rules.worth, style);
    if !forest.is_empty() {
        text += &format!("\n{}\n", forest.join("\n"));
    }
    if !findings.further.is_empty() {
        text += &format!("\n{}", aligned(further::rows(&findings.further)));
    }
    text.push('\n');
    for note in notes(measured, findings) {
        text += &format!("{}\n", printable(note));
    }
    text
}

/// The headings of the columns.
pub(super) const HEADING: [&str; 6] =
    ["function", "calls/unit", "own/unit", "sensitivity", "worth at most", "verdict"];

/// The table of functions: the service's own code, libraries and native code; in each, those that are worth
/// most first.
pub fn table(findings: &Findings, shown: usize) -> String {
    let rows = rows(findings, shown, cells).into_iter().map(|(_, row)| row).collect();
    aligned(rows) + &below(findings, shown)
}

/// The table for a terminal, with colours.
fn coloured_table(findings: &Findings, style: Style) -> String {
    let fits = |table: &String| table.lines().all(|line| columns(line) <= style.columns);
    let (factors, all): (Vec<_>, Vec<_>) = rows(findings, SHOWN, cells).into_iter().unzip();
    let mut table = aligned(all);
    // If the table does not fit, we first cut names and leave out explanations of verdicts, and then counts
    // and times.
    let short = || rows(findings, SHOWN, short_cells).into_iter().map(|(_, row)| row);
    if !fits(&table) {
        table = aligned(shortened(short().collect(), style.columns));
    }
    if !fits(&table) {
        let few = |row: Vec<String>| {
            row.into_iter().enumerate().filter(|(at, _)| !matches!(at, 1 | 2)).map(|(_, cell)| cell).collect()
        };
        table = aligned(shortened(short().map(few).collect(), style.columns));
    }
    let mut text = String::new();
    for (line, factor) in table.lines().zip(factors) {
        let coloured = factor.and_then(|factor| {
            let at = line.rfind(short_verdict(factor.verdict))?;
            Some((&line[..at], style.coloured(factor.verdict, &line[at..])))
        });
        text += &match coloured {
            Some((before, verdict)) => format!("{before}{verdict}\n"),
            None if line.is_empty() => "\n".to_owned(),
            None => format!("{}\n", style.with("2", line)),
        };
    }
    text + &below(findings, SHOWN)
}

/// The heading, and a row for each function, under the title of its section.
fn rows(
    findings: &Findings,
    shown: usize,
    cells: fn(&Factor) -> [String; 6],
) -> Vec<(Option<&Factor>, Vec<String>)> {
    let mut rows = vec![(None, HEADING.map(str::to_owned).to_vec())];
    for Section { title, factors } in text_sections(findings, shown) {
        if let Some(title) = title {
            rows.extend([(None, Vec::new()), (None, vec![title.to_owned()])]);
        }
        rows.extend(factors.into_iter().map(|factor| (Some(factor), cells(factor).to_vec())));
    }
    rows
}

/// Lines below the table: how many more functions there are, and how many were dismissed.
fn below(findings: &Findings, shown: usize) -> String {
    let lines = [more(findings, shown), folded(findings), dismissed(findings)];
    lines.into_iter().flatten().map(|line| line + "\n").collect()
}

/// The cells below [`HEADING`].
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

/// The cells below [`HEADING`], with short verdicts.
fn short_cells(factor: &Factor) -> [String; 6] {
    let [name, calls, own, sensitivity, worth, _] = cells(factor);
    [name, calls, own, sensitivity, worth, short_verdict(factor.verdict).to_owned()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::simulated::{Function, Noise, sweep};

    fn experiment() -> Experiment {
        let of = |sensitivity| Function { calls: 1.0, sensitivity, slack: 0.0 };
        let name = "a_function_with_a_long_name_\x1b[31m".to_owned();
        let functions = [(name, of(1.0), 3e5), ("score".to_owned(), of(0.0), 3e5)];
        let measured = sweep(1e6, &functions, Noise::White(0.01), std::time::Duration::from_secs(40), 1);
        Experiment::new(measured)
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let experiment = experiment();
        for width in [72, 80, 100, 140] {
            let text = render(&experiment, Style { columns: width, colour: false });
            let table: Vec<&str> = text.lines().skip(2).take(7).collect();
            assert!(table.iter().all(|line| columns(line) <= width), "{width}\n{text}");
            assert!(table[1].contains("0.9") || table[1].contains("1."), "{text}");
        }
        let wide = render(&experiment, Style::PLAIN);
        assert!(wide.contains("does not matter (hidden up to"), "{wide}");
        assert!(!render(&experiment, Style { columns: 80, colour: false }).contains("(hidden up to"));
    }

    #[test]
    fn names_cannot_add_colours() {
        let experiment = experiment();
        assert!(!render(&experiment, Style::PLAIN).contains('\x1b'));
        let coloured = render(&experiment, Style { columns: 200, colour: true });
        assert!(coloured.contains("\x1b[1;31mmatters\x1b[0m"), "{coloured}");
        assert!(coloured.contains(r"name_\x1b[31m"), "{coloured}");
        // Without the codes, the text is the same.
        let codes = ["1", "2", "1;31", "36"].map(|code| format!("\x1b[{code}m"));
        let plain = codes.iter().fold(coloured.replace("\x1b[0m", ""), |text, code| text.replace(code, ""));
        assert_eq!(plain, render(&experiment, Style { columns: 200, colour: false }));
    }
}
