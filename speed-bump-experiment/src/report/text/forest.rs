//! The forest plot in characters: the worth of each function, with its interval.

use super::Style;
use crate::{
    analysis::{
        factor::{Factor, FactorKind},
        findings::Findings,
        verdict::Verdict,
    },
    printable::{at_most, columns},
    report::{
        notes::tested,
        scale::{Scale, WORTHS, short},
        words::name_and_place,
    },
};

/// Functions that are drawn.
const DRAWN: usize = 15;
/// The smallest width of the drawing, in columns.
const MIN: usize = 20;
/// The largest width.
const MAX: usize = 60;
/// The largest width of a name.
const NAMES: usize = 40;

/// Lines of the plot; empty if no worth is known, or if there is no room.
pub(super) fn forest(findings: &Findings, worth: f64, style: Style) -> Vec<String> {
    let known = |of: &&Factor| of.worth_high.is_some() && of.kind != FactorKind::Group;
    let drawn: Vec<&Factor> = tested(findings).filter(known).take(DRAWN).collect();
    let names: Vec<String> = drawn.iter().map(|of| at_most(name_and_place(of), NAMES)).collect();
    let widest = names.iter().map(|name| columns(name)).max().unwrap_or(0);
    let room = style.columns.saturating_sub(widest + 3);
    if drawn.is_empty() || room < MIN {
        return Vec::new();
    }
    let cells = room.min(MAX);
    let values = drawn.iter().flat_map(|of| [of.worth, of.worth_low, of.worth_high]).flatten();
    let scale = Scale::over(values.chain([0.0, 2.0 * worth])).within(WORTHS.0, WORTHS.1);
    let at = |value: f64| (scale.share(value) * (cells - 1) as f64).round() as usize;
    let heading = "worth at most, in % of the time per unit; left of ┊ it does not matter";
    let mut lines = vec![heading.to_owned()];
    for (factor, name) in drawn.iter().zip(names) {
        let mut row = vec![' '; cells];
        row[at(worth)] = '┊';
        if let (low, Some(high)) = (factor.worth_low.unwrap_or(0.0), factor.worth_high) {
            row[at(low)..=at(high).max(at(low))].fill('─');
            row[at(low)] = '├';
            row[at(high)] = '┤';
        }
        if let Some(worth) = factor.worth {
            row[at(worth)] = mark(factor.verdict);
        }
        let row: String = row.into_iter().collect();
        let padding = widest - columns(&name);
        let row = style.coloured(factor.verdict, row.trim_end());
        lines.push(format!("{name}{:padding$}  {row}", ""));
    }
    lines.push(format!("{:widest$}  {}", "", axis(&scale, cells)));
    lines
}

/// The axis: as many numbers as fit.
fn axis(scale: &Scale, cells: usize) -> String {
    let mut line = String::new();
    for tick in scale.ticks((cells / 10).max(2)) {
        let label = short(tick * 100.0);
        let at = (scale.share(tick) * (cells - 1) as f64).round() as usize;
        let begin = at.saturating_sub(label.len() / 2);
        if begin >= line.len() + usize::from(!line.is_empty()) {
            line += &format!("{:padding$}{label}", "", padding = begin - line.len());
        }
    }
    line
}

/// The mark of a verdict. Shapes differ, so the plot needs no colours.
fn mark(verdict: Verdict) -> char {
    match verdict {
        Verdict::Matters => '■',
        Verdict::DoesNotMatter => '○',
        Verdict::Undecided | Verdict::Dismissed => '◇',
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{analysis::findings::findings, simulated::Function, testing};

    fn found() -> Findings {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let functions = [("render", function, 300), ("score", function, 100)];
        let mut found = findings(&testing::measured(&functions));
        let of = [(0.3, 0.25, 0.35, Verdict::Matters), (0.0, -0.005, 0.005, Verdict::DoesNotMatter)];
        for (factor, (worth, low, high, verdict)) in found.factors.iter_mut().zip(of) {
            (factor.worth, factor.worth_low, factor.worth_high) = (Some(worth), Some(low), Some(high));
            factor.verdict = verdict;
        }
        found
    }

    #[test]
    fn intervals_and_marks_lie_on_the_axis() {
        let lines = forest(&found(), 0.01, Style { columns: 60, colour: false });
        assert_eq!(
            lines,
            [
                "worth at most, in % of the time per unit; left of ┊ it does not matter",
                "render (app.py:7)     ┊                       ├────■─────┤",
                "score (app.py:7)    ├○┊",
                "                     0        10        20        30",
            ]
        );
    }

    #[test]
    fn a_narrow_terminal_gets_no_plot() {
        assert_eq!(forest(&found(), 0.01, Style { columns: 30, colour: false }), Vec::<String>::new());
        let mut unknown = found();
        unknown.factors.iter_mut().for_each(|of| of.worth_high = None);
        assert_eq!(forest(&unknown, 0.01, Style { columns: 80, colour: false }), Vec::<String>::new());
    }
}
