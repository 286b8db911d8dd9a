//! Whether the experiment may be believed: what its own checks found.

use maud::{Markup, html};

use super::cells::{number, sentence};
use crate::{
    analysis::findings::Findings,
    record::{Mark, Measured},
};

/// Problems that are told.
const PROBLEMS: usize = 20;

/// The box.
pub(super) fn validity(measured: &Measured, findings: &Findings) -> Markup {
    let of = &findings.validity;
    let delivered = of.delivered_over_asked.map_or_else(none, |of| format!("{:.1} %", of * 100.0));
    let share = |value: Option<f64>, digits: usize| number(value, &share(value, digits));
    html! {
        section.validity.fails[!of.holds] aria-labelledby="validity" {
            h2 id="validity" {
                @if of.holds { "Its own checks hold" } @else { "Its own checks failed: no verdict stands" }
            }
            dl {
                dt { "Delay that was delivered, of what was asked for" }
                dd { (number(of.delivered_over_asked, &delivered)) }
                dt { "Slices with delays of zero, against those without delays (A/A)" }
                dd { (share(of.placebo, 2)) }
                dt { "A unit in the second half, against the first" }
                dd { (share(of.drift, 1)) }
                dt { "A unit after the experiment, against before it" }
                dd { (share(of.recovery, 1)) }
                dt { "Slices that count" }
                dd {
                    (number(Some(of.slices as f64), &of.slices.to_string()))
                    @for dropped in &of.dropped { ", not " (dropped.slices) ": " (why(dropped.reason)) }
                }
                dt { "Who sets the throughput" }
                dd {
                    (match findings.open_loop {
                        Some(true) => "those who send requests (open loop): latencies are compared",
                        Some(false) => "the service (closed loop)",
                        None => "not known",
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
        Mark::Load => "the load was not there, or it was looked whether it is",
    }
}

fn none() -> String {
    "not known".to_owned()
}
