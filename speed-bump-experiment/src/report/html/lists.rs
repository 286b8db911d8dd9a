//! Lists: undecided functions, functions that are not drawn, and dismissed ones.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{
    cells::{foreign, function, number, sentence},
    forest::verdict,
};
use crate::{
    analysis::{factor::Factor, findings::Findings, verdict::Verdict},
    report::{notes::tested, words},
};

/// The text if it is unknown how long a decision would take.
const NEITHER: &str = "neither is shown: take more time or larger delays (--for, --doses)";

/// Bytes that are left for rows of the page.
pub(super) struct Budget(pub(super) usize);

/// Bytes of the page that rows leave free for other content.
const AROUND: usize = 4 << 10;

impl Budget {
    /// Takes as many rows as fit; returns them, and how many do not fit.
    fn take(&mut self, rows: impl Iterator<Item = Markup>) -> (Vec<Markup>, usize) {
        let mut taken = Vec::new();
        let mut left_out = 0;
        for row in rows {
            if left_out == 0 && row.0.len() + AROUND < self.0 {
                self.0 -= row.0.len();
                taken.push(row);
            } else {
                left_out += 1;
            }
        }
        (taken, left_out)
    }
}

/// Undecided functions, with what would decide them.
pub(super) fn undecided(findings: &Findings, most: usize) -> Markup {
    let open = || tested(findings).filter(|of| of.verdict == Verdict::Undecided);
    html! {
        @if open().next().is_some() {
            section aria-labelledby="undecided-functions" {
                h2 id="undecided-functions" { "Undecided" }
                ul {
                    @for factor in open().take(most) {
                        li {
                            (function(factor)) ": "
                            (sentence(factor.reason.as_deref().unwrap_or(NEITHER)))
                        }
                    }
                    @if open().count() > most { li { (open().count() - most) " more" } }
                }
            }
        }
    }
}

/// Tested functions that are not drawn, and dismissed functions.
pub(super) fn lists(findings: &Findings, drawn: usize, budget: &mut Budget) -> Markup {
    let more = more(findings, drawn, budget);
    let dismissed = dismissed(findings, budget);
    html! { (more) (dismissed) }
}

fn more(findings: &Findings, drawn: usize, budget: &mut Budget) -> Markup {
    let row = |factor: &Factor| {
        html! {
            tr {
                th scope="row" { (function(factor)) }
                td { (verdict(factor)) }
                td.n { (number(factor.worth.or(factor.worth_high), &words::worth(factor))) }
                td.n { (number(factor.sensitivity.or(factor.high), &words::sensitivity(factor))) }
                td.n { (number(factor.own_ns_per_unit, &words::own(factor))) }
            }
        }
    };
    let (rows, left_out) = budget.take(tested(findings).skip(drawn).map(row));
    html! {
        @if rows.len() + left_out > 0 {
            section aria-labelledby="more" {
                h2 id="more" { "More functions that were tested" }
                details {
                    summary { (rows.len() + left_out) " functions" }
                    table.sortable {
                        thead {
                            tr {
                                th scope="col" { "function" } th scope="col" { "verdict" }
                                th.n scope="col" { "worth at most" } th.n scope="col" { "sensitivity" }
                                th.n scope="col" { "own time a unit" }
                            }
                        }
                        tbody { @for row in rows { (row) } }
                    }
                }
                (rest(left_out))
            }
        }
    }
}

fn dismissed(findings: &Findings, budget: &mut Budget) -> Markup {
    let mut by_reason: BTreeMap<&str, Vec<&Factor>> = BTreeMap::new();
    for factor in findings.factors.iter().filter(|of| of.verdict == Verdict::Dismissed) {
        by_reason.entry(factor.reason.as_deref().unwrap_or_default()).or_default().push(factor);
    }
    let row = |factor: &&Factor| {
        html! { li { (function(factor)) " " (number(factor.own_ns_per_unit, &words::own(factor))) } }
    };
    html! {
        @if !by_reason.is_empty() {
            section aria-labelledby="dismissed" {
                h2 id="dismissed" { "Dismissed" }
                p { "These functions were not tested. Times are own times per unit." }
                @for (reason, factors) in by_reason {
                    @let (rows, left_out) = budget.take(factors.iter().map(row));
                    details {
                        summary {
                            (factors.len()) @if factors.len() == 1 { " function: " } @else { " functions: " }
                            (foreign(reason))
                        }
                        ul.columns { @for row in rows { (row) } }
                        (rest(left_out))
                    }
                }
            }
        }
    }
}

fn rest(left_out: usize) -> Markup {
    html! { @if left_out > 0 { p { (left_out) " more are in the JSON." } } }
}
