//! A report as one HTML file that fetches nothing.
//!
//! It is readable without colours, drawings and scripts: each figure has a table of its numbers, as text and
//! with all digits (`<data value>`). Scripts sort, filter, and show the slice under the pointer. Names from a
//! process are escaped and cut. A policy in the page (Content Security Policy Level 3) prevents its content
//! from running or fetching anything.

mod cells;
mod command;
mod curves;
mod forest;
mod lists;
mod timeline;
mod validity;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{further, notes, sharing, waits};
use crate::record::Experiment;
use lists::Budget;

/// The largest page, in bytes. The page only counts functions that do not fit; they are in the JSON.
const MAX: usize = 290 << 10;

/// Rows of further metrics.
const FURTHER: usize = 30;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
/// The SHA-256 of [`SCRIPT`], in base64.
const SCRIPT_HASH: &str = "sha256-da7owHmmkd+aB1YuzN8i3Sxr0EjslCiJEXcn3MiRh1E=";

/// How much of an experiment a page shows.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Functions that are drawn; lists have the others.
    functions: usize,
    /// Bytes of the list of slices.
    slices: usize,
}

/// Decreasing limits, because there may be many long names.
const LIMITS: [Limits; 3] = [
    Limits { functions: 40, slices: 90 << 10 },
    Limits { functions: 15, slices: 0 },
    Limits { functions: 3, slices: 0 },
];

/// The report as a page.
pub fn render(experiment: &Experiment) -> String {
    let [most, less @ ..] = LIMITS;
    let mut page = page(experiment, most);
    for limits in less {
        if page.len() <= MAX {
            break;
        }
        page = self::page(experiment, limits);
    }
    page
}

fn page(experiment: &Experiment, limits: Limits) -> String {
    let Experiment { measured, findings } = experiment;
    let shared = sharing::shared(findings);
    let drawn = html! {
        header {
            p.what { "speed-bump-ebpf sweep" }
            h1 { (cells::sentence(&findings.verdict)) }
            @if let Some(unit) = notes::unit(measured, findings) {
                p { "A unit of work: " (cells::sentence(&unit)) "." }
            }
        }
        main {
            section aria-labelledby="functions" {
                h2 id="functions" { "Which functions matter" }
                (forest::forest(measured, findings, limits.functions))
                @if let Some(waits) = waits::line(&measured.waits) {
                    p { (cells::sentence(&waits)) }
                }
                @for of in notes::over_callers(findings).iter().take(limits.functions) {
                    p { (cells::sentence(of)) "." }
                }
                @for shared in shared.iter().take(limits.functions) {
                    p { "Shared with units of work: " (cells::sentence(shared)) }
                }
            }
            (lists::undecided(findings, limits.functions))
            (curves::curves(findings, limits.functions))
            (timeline::timeline(measured, limits.slices))
            (further_metrics(experiment))
            (validity::validity(measured, findings))
        }
    };
    let again = command::again(measured);
    let around = drawn.0.len() + again.0.len() + STYLE.len() + SCRIPT.len();
    let mut budget = Budget(MAX.saturating_sub(around));
    let lists = lists::lists(findings, limits.functions, &mut budget);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "What matters: " (cells::foreign(&measured.unit.name)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (forest::marks())
                (drawn)
                (lists)
                (again)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// The policy: fetch nothing, and run no script but the page's own.
fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_HASH}'; base-uri 'none'; \
         form-action 'none'"
    )
}

/// The table of further metrics.
fn further_metrics(Experiment { findings, .. }: &Experiment) -> Markup {
    if findings.further.is_empty() {
        return html! {};
    }
    let mut rows = further::rows(&findings.further).into_iter();
    let heading = rows.next().unwrap_or_default();
    html! {
        section aria-labelledby="besides" {
            h2 id="besides" { "What else changed" }
            div.wide {
                table {
                    thead { tr { @for cell in heading { th scope="col" { (cell) } } } }
                    tbody {
                        @for row in rows.take(FURTHER) {
                            tr { @for cell in row { td { (cells::foreign(&cell)) } } }
                        }
                    }
                }
            }
        }
    }
}
