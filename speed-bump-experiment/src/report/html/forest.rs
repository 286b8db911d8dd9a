//! The functions as a forest plot: worth and sensitivity drawn beside the numbers.
//!
//! It is a table, so it is readable without the drawing.

use maud::{Markup, html};

use super::cells::{function, number};
use crate::{
    analysis::{factor::Factor, findings::Findings, verdict::Verdict},
    record::Measured,
    report::{
        notes::tested,
        scale::{Scale, WORTHS, short},
        sections::{Section, sections},
        words,
    },
};

/// Limits of the axis of sensitivities.
const SENSITIVITIES: (f64, f64) = (-1.0, 3.0);

/// A drawn column.
struct Column {
    scale: Scale,
    /// Marked values: `(value, whether it is a bound of a verdict)`.
    lines: Vec<(f64, bool)>,
    shown: fn(f64) -> String,
}

/// The table of at most this many functions; empty if none was tested.
pub(super) fn forest(measured: &Measured, findings: &Findings, most: usize) -> Markup {
    let drawn: Vec<&Factor> = tested(findings).take(most).collect();
    if drawn.is_empty() {
        return html! {};
    }
    let of = |values: fn(&Factor) -> [Option<f64>; 3]| {
        drawn.iter().flat_map(move |factor| values(factor)).flatten().collect::<Vec<f64>>()
    };
    let worth = Column {
        scale: Scale::over(of(|of| [of.worth, of.worth_low, of.worth_high]).into_iter().chain([0.0, 0.02]))
            .within(WORTHS.0, WORTHS.1),
        lines: vec![(0.0, false), (measured.rules.worth, true)],
        shown: |value| short(value * 100.0) + " %",
    };
    let sensitivity = Column {
        scale: Scale::over(of(|of| [of.sensitivity, of.low, of.high]).into_iter().chain([0.0, 1.0]))
            .within(SENSITIVITIES.0, SENSITIVITIES.1),
        lines: vec![(0.0, false), (1.0, false), (measured.rules.threshold, true)],
        shown: short,
    };
    let sections = sections(findings, most);
    html! {
        @for (place, Section { title, factors }) in sections.iter().enumerate() {
            @if let Some(title) = title { h3 { (title) } }
            table.forest.sortable role="table" {
                @if place == 0 {
                    caption {
                        "What making each function free would gain at most, and which share of its added "
                        "time shows. Lines are 95 % intervals. Left of a dashed line a function does not "
                        "matter (" (short(measured.rules.worth * 100.0)) " % of a unit, sensitivity "
                        (short(measured.rules.threshold)) "), unless it shows and is worth more."
                    }
                }
                (heading(&worth, &sensitivity))
                tbody role="rowgroup" { @for factor in factors { (row(factor, &worth, &sensitivity)) } }
            }
        }
    }
}

fn heading(worth: &Column, sensitivity: &Column) -> Markup {
    html! {
        thead role="rowgroup" {
            tr role="row" {
                th role="columnheader" scope="col" { "function" }
                th role="columnheader" scope="col" { "verdict" }
                th.plot role="columnheader" scope="col" { "worth at most" (worth.axis()) }
                th.plot role="columnheader" scope="col" { "sensitivity" (sensitivity.axis()) }
                th.n role="columnheader" scope="col" { "own time a unit" }
                th.n role="columnheader" scope="col" { "calls a unit" }
            }
        }
    }
}

fn row(factor: &Factor, worth: &Column, sensitivity: &Column) -> Markup {
    html! {
        tr role="row" {
            th role="rowheader" scope="row" { (function(factor)) }
            td role="cell" { (verdict(factor)) }
            td.plot role="cell" data-label="worth at most" {
                (worth.row([factor.worth, factor.worth_low, factor.worth_high], factor.verdict))
                (number(factor.worth.or(factor.worth_high), &words::worth(factor)))
            }
            td.plot role="cell" data-label="sensitivity" {
                (sensitivity.row([factor.sensitivity, factor.low, factor.high], factor.verdict))
                (number(factor.sensitivity.or(factor.high), &words::sensitivity(factor)))
            }
            td.n role="cell" data-label="own time a unit" {
                (number(factor.own_ns_per_unit, &words::own(factor)))
            }
            td.n role="cell" data-label="calls a unit" {
                (number(Some(factor.calls_per_unit), &format!("{:.1}", factor.calls_per_unit)))
            }
        }
    }
}

/// A verdict: its mark and its text.
pub(super) fn verdict(factor: &Factor) -> Markup {
    html! {
        span.verdict.(class(factor.verdict)) {
            svg.mark aria-hidden="true" { svg x="50%" y="50%" { (mark(factor.verdict)) } }
            (words::verdict(factor))
        }
    }
}

/// The mark of a verdict. Shapes differ, so the page needs no colours.
fn mark(verdict: Verdict) -> Markup {
    html! { use href={ "#" (class(verdict)) } {} }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Matters => "matters",
        Verdict::DoesNotMatter => "not",
        Verdict::Undecided | Verdict::Dismissed => "undecided",
    }
}

/// The definitions of the shapes.
pub(super) fn marks() -> Markup {
    html! {
        svg.marks aria-hidden="true" width="0" height="0" {
            defs {
                rect id="matters" x="-5" y="-5" width="10" height="10" {}
                circle id="not" r="5" {}
                path id="undecided" d="M-6 0L0-6 6 0 0 6Z" {}
            }
        }
    }
}

impl Column {
    fn axis(&self) -> Markup {
        html! {
            svg.axis aria-hidden="true" {
                @for tick in self.scale.ticks(5) {
                    text x=(self.scale.along(tick)) y="11" { ((self.shown)(tick)) }
                }
            }
        }
    }

    fn row(&self, [value, low, high]: [Option<f64>; 3], verdict: Verdict) -> Markup {
        let at = |value| self.scale.along(value);
        html! {
            svg.row.(class(verdict)) aria-hidden="true" {
                @for (value, is_bound) in self.lines.iter().filter(|(value, _)| self.scale.holds(*value)) {
                    line.ref.bound[*is_bound] x1=(at(*value)) x2=(at(*value)) y1="0" y2="100%" {}
                }
                @match (value, low, high) {
                    (Some(value), Some(low), Some(high)) => {
                        line x1=(at(low)) x2=(at(high)) y1="50%" y2="50%" {}
                        svg x=(at(value)) y="50%" { (mark(verdict)) }
                    }
                    // Only an upper bound is known.
                    (None, None, Some(high)) => {
                        line x1="0" x2=(at(high)) y1="50%" y2="50%" {}
                        svg x=(at(high)) y="50%" { path d="M0-5V5" {} }
                    }
                    _ => {}
                }
            }
        }
    }
}
