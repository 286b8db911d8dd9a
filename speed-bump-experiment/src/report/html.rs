//! A report as one HTML file: everything is in it, and nothing is fetched.
//!
//! It reads the same without colours, without drawings and without scripts: each figure has its numbers in a
//! table, as text and as the JSON has them (`<data value>`). Scripts sort, filter, and tell what lies under a
//! pointer. Names that a process chose are escaped, and cut where they are long; a policy in the page keeps
//! whatever may stand in it from running or fetching anything (Content Security Policy Level 3).

mod cells;
mod command;
mod curves;
mod forest;
mod lists;
mod timeline;
mod validity;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{further, notes, sharing};
use crate::record::Experiment;
use lists::Budget;

/// How large a page may get, in bytes: what does not fit is counted in it, and is in the JSON.
const MAX: usize = 290 << 10;

/// Rows of what was measured besides.
const FURTHER: usize = 30;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
/// The SHA-256 of [`SCRIPT`], in base64.
const SCRIPT_HASH: &str = "sha256-da7owHmmkd+aB1YuzN8i3Sxr0EjslCiJEXcn3MiRh1E=";

/// How much of an experiment is in a page.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Functions that are drawn; the others are in plain lists.
    functions: usize,
    /// Bytes of the list of slices.
    slices: usize,
}

/// Less and less: names may be long, and there may be many of them.
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
                @for shared in shared.iter().take(limits.functions) {
                    p { "In common with units of work: " (cells::sentence(shared)) }
                }
            }
            (lists::undecided(findings, limits.functions))
            (curves::curves(findings, limits.functions))
            (timeline::timeline(measured, limits.slices))
            (besides(experiment))
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

/// Nothing is fetched, and no script runs but ours.
fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_HASH}'; base-uri 'none'; \
         form-action 'none'"
    )
}

/// What was measured besides the time of a unit.
fn besides(Experiment { findings, .. }: &Experiment) -> Markup {
    if findings.further.is_empty() {
        return html! {};
    }
    let mut rows = further::rows(&findings.further).into_iter();
    let heading = rows.next().unwrap_or_default();
    html! {
        section aria-labelledby="besides" {
            h2 id="besides" { "What else moved" }
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
