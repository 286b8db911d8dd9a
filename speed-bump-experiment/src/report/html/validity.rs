//! The results of the experiment's own checks.

use maud::{Markup, html};

use super::cells::{number, sentence};
use crate::{
    analysis::findings::Findings,
    record::{Mark, Measured},
};

/// The most problems that are listed.
const PROBLEMS: usize = 20;

/// The box with the results.
pub(super) fn validity(measured: &Measured, findings: &Findings) -> Markup {
    let of = &findings.validity;
    let delivered = of.delivered_over_asked.map_or_else(none, |of| format!("{:.1} %", of * 100.0));
    let share = |value: Option<f64>, digits: usize| number(value, &share(value, digits));
    html! {
        section.validity.fails[!of.holds] aria-labelledby="validity" {
            h2 id="validity" {
                @if of.holds { "The experiment's own checks passed" }
                @else { "The experiment's own checks failed: no verdict is valid" }
            }
            dl {
                dt { "Delivered delay, as a share of the requested delay" }
                dd { (number(of.delivered_over_asked, &delivered)) }
                dt { "A unit in the second half, against the first" }
                dd { (share(of.drift, 1)) }
                dt { "Time per unit after the experiment, compared with before it" }
                dd { (share(of.recovery, 1)) }
                dt { "Slices that count" }
                dd {
                    (number(Some(of.slices as f64), &of.slices.to_string()))
                    @for dropped in &of.dropped { ", not " (dropped.slices) ": " (why(dropped.reason)) }
                }
                dt { "Who sets the throughput" }
                dd {
                    (match findings.open_loop {
                        Some(true) => "the clients (open loop): latencies are compared",
                        Some(false) => "the service (closed loop)",
                        None => "unknown",
                    })
                }
                @if let Some(busy) = measured.around.and_then(|around| around.processors_busy) {
                    dt { "The machine's processors were busy" }
                    dd { (number(Some(busy), &format!("{:.0} %", busy * 100.0))) }
                }
            }
            @if !of.problems.is_empty() {
                ul {
                    @for problem in of.problems.iter().take(PROBLEMS) {
                        li { @if problem.fatal { strong { "Not valid: " } } (sentence(&problem.text)) }
                    }
                }
            }
        }
    }
}

fn share(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(none, |value| format!("{:+.digits$} %", value * 100.0))
}

fn why(mark: Mark) -> &'static str {
    match mark {
        Mark::Late => "the tool itself was late",
        Mark::Guarded => "a guard ended it",
        Mark::Unsettled => "the service was still changing, without any delay",
        Mark::Load => "the load was not there, or was being checked",
    }
}

fn none() -> String {
    "unknown".to_owned()
}
