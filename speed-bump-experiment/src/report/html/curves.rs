//! The dose curves: how much longer a unit took with each delay of a function.

use maud::{Markup, html};

use super::{
    cells::{foreign, number},
    forest::verdict,
};
use crate::{
    analysis::{curve::Curve, factor::Factor, findings::Findings},
    report::{
        notes::tested,
        scale::{Scale, short, unit_of_time},
        words::{name_and_place, nothing, time},
    },
};

/// Number of curves: those of the functions that are worth most.
const DRAWN: usize = 12;

/// A figure for each function that was tested alone.
pub(super) fn curves(findings: &Findings, most: usize) -> Markup {
    let drawn = || tested(findings).filter_map(|of| of.curve.as_ref().map(|curve| (of, curve)));
    html! {
        @if drawn().next().is_some() {
            section aria-labelledby="curves" {
                h2 id="curves" { "What each delay did" }
                p {
                    "How much longer a unit took, against the delay that was added to it. On the dotted line "
                    "all of the delay shows; a bend is where delay stops being hidden."
                }
                div.figures {
                    @for (factor, curve) in drawn().take(DRAWN.min(most)) { (figure(factor, curve)) }
                }
            }
        }
    }
}

fn figure(factor: &Factor, curve: &Curve) -> Markup {
    let ends = |of: fn(&Curve) -> Vec<f64>| of(curve);
    let delays = ends(|curve| curve.doses.iter().map(|of| of.delay_ns).collect());
    let times = ends(|curve| {
        let of = curve.doses.iter().flat_map(|of| [Some(of.time_ns), of.low_ns, of.high_ns]);
        of.flatten().collect()
    });
    let most = delays.iter().copied().fold(1.0, f64::max);
    let (x, y) =
        (Scale::over(delays.iter().copied().chain([0.0])), Scale::over(times.into_iter().chain([0.0, most])));
    let (unit, ns) = unit_of_time(most);
    let shown = |value: f64| short(value / ns);
    html! {
        figure {
            figcaption { code { (foreign(&name_and_place(factor))) } " " (verdict(factor)) }
            div.curve {
                svg aria-hidden="true" {
                    @for tick in y.ticks(5) {
                        line.grid x1="0" x2="100%" y1=(y.down(tick)) y2=(y.down(tick)) {}
                        text.y x="-6" y=(y.down(tick)) { (shown(tick)) }
                    }
                    @for tick in x.ticks(5) {
                        text.x x=(x.along(tick)) y="100%" dy="16" { (shown(tick)) }
                    }
                    @if let Some(bend) = &curve.bend {
                        svg.slack x=(x.along(bend.low_ns)) {
                            rect width={ (x.along(bend.high_ns).less(x.along(bend.low_ns))) } height="100%" {}
                        }
                    }
                    (line(&x, &y, (0.0, 0.0), (most, most), "all"))
                    @for (from, to) in fitted(factor, curve, most) { (line(&x, &y, from, to, "fit")) }
                    @for dose in &curve.doses {
                        g.dose {
                            title {
                                (time(dose.delay_ns)) " more delay: " (signed(dose.time_ns)) " a unit, "
                                (dose.blocks) " blocks"
                            }
                            @if let Some((low, high)) = dose.low_ns.zip(dose.high_ns) {
                                line x1=(x.along(dose.delay_ns)) x2=(x.along(dose.delay_ns))
                                    y1=(y.down(low)) y2=(y.down(high)) {}
                            }
                            circle cx=(x.along(dose.delay_ns)) cy=(y.down(dose.time_ns)) r="4" {}
                        }
                    }
                }
            }
            p.axes { "x: delay added to a unit, y: how much longer it took, both in " (unit) }
            @if let Some(bend) = &curve.bend {
                p {
                    "Hidden up to "
                    (number(Some(bend.slack_ns), &time(bend.slack_ns)))
                    " a unit (" (number(Some(bend.low_ns), &time(bend.low_ns))) " to "
                    (number(Some(bend.high_ns), &time(bend.high_ns))) "); beyond, "
                    (number(Some(bend.beyond), &format!("{:.0} %", bend.beyond * 100.0))) " shows."
                }
            }
            details {
                summary { "numbers" }
                table.doses {
                    thead {
                        tr {
                            @for heading in ["delay", "longer by", "from", "to", "blocks"] {
                                th.n scope="col" { (heading) }
                            }
                        }
                    }
                    tbody {
                        @for dose in &curve.doses {
                            tr {
                                @for value in [Some(dose.delay_ns), Some(dose.time_ns)] {
                                    td.n { (number(value, &value.map_or_else(nothing, signed))) }
                                }
                                @for value in [dose.low_ns, dose.high_ns] {
                                    td.n { (number(value, &value.map_or_else(nothing, signed))) }
                                }
                                td.n { (dose.blocks) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The fitted lines: up to the bend and beyond it, or one straight line.
fn fitted(factor: &Factor, curve: &Curve, most: f64) -> Vec<((f64, f64), (f64, f64))> {
    match (&curve.bend, factor.sensitivity) {
        (Some(bend), _) => {
            let beyond = (most - bend.slack_ns).max(0.0) * bend.beyond;
            vec![((0.0, 0.0), (bend.slack_ns, 0.0)), ((bend.slack_ns, 0.0), (most, beyond))]
        }
        (None, Some(sensitivity)) => vec![((0.0, 0.0), (most, most * sensitivity))],
        (None, None) => Vec::new(),
    }
}

fn line(x: &Scale, y: &Scale, from: (f64, f64), to: (f64, f64), class: &str) -> Markup {
    html! {
        line.(class) x1=(x.along(from.0)) y1=(y.down(from.1)) x2=(x.along(to.0)) y2=(y.down(to.1)) {}
    }
}

/// A time that may be negative.
fn signed(ns: f64) -> String {
    if ns < 0.0 { format!("-{}", time(-ns)) } else { time(ns) }
}
