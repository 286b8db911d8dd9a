//! Throughput over time, by slice.

use maud::{Markup, html};

use super::cells::{foreign, number, sentence};
use crate::{
    record::{Measured, Phase, Slice, Treatment},
    report::{
        scale::{Scale, seconds, short},
        words::{candidate_name, phase_name},
    },
    units::Nanos,
};

/// Width and height of the coordinate system of slices.
const SIZE: (f64, f64) = (2_000.0, 200.0);
/// The most slices that are drawn.
const DRAWN: usize = 4_000;
/// The most rows of the list of slices; with more slices, a row stands for several.
const LISTED: usize = 500;
/// The most phases that are shown. A valid record has five.
const PHASES: usize = 10;
/// The smallest share of the time with room for a phase's name.
const NAMED: f64 = 0.08;

/// The figure with its numbers. It lists slices if the list takes at most `listed` bytes.
pub(super) fn timeline(measured: &Measured, listed: usize) -> Markup {
    let Some((begin, end)) = measured.slices.first().zip(measured.slices.last()) else { return html! {} };
    let begin = measured.phases.first().map_or(begin.start_ns, |phase| phase.start_ns.min(begin.start_ns));
    let time = Scale::over([0.0, seconds(begin, end.end_ns)]);
    let step = measured.slices.len().div_ceil(DRAWN);
    let drawn = || measured.slices.iter().step_by(step.max(1));
    let rates = Scale::over(drawn().map(Slice::rate).chain([0.0]));
    let path = |wanted: fn(&Slice) -> bool| -> String {
        let slices = drawn().filter(|slice| slice.counts() && wanted(slice));
        slices
            .map(|slice| {
                let [from, to] =
                    [slice.start_ns, slice.end_ns].map(|at| time.share(seconds(begin, at)) * SIZE.0);
                let height = (1.0 - rates.share(slice.rate())) * SIZE.1;
                format!("M{from:.1} {height:.1}H{to:.1}")
            })
            .collect()
    };
    let dropped: String = drawn()
        .filter(|slice| !slice.counts())
        .map(|slice| {
            let at = time.share(seconds(begin, slice.start_ns)) * SIZE.0;
            let height = (1.0 - rates.share(slice.rate())) * SIZE.1;
            format!("M{at:.1} {:.1}v16", height - 8.0)
        })
        .collect();
    let view = format!("0 0 {} {}", SIZE.0, SIZE.1);
    html! {
        section aria-labelledby="time" {
            h2 id="time" { "Throughput over time" }
            figure {
                figcaption {
                    "Units a second, slice by slice: "
                    span.key.without { "without delays" } " and " span.key.with { "with delays" } ". "
                    @if measured.slices.iter().any(|slice| !slice.counts()) {
                        "A " span.key.dropped { "vertical stroke" } " is a slice that does not count."
                    }
                }
                div.timeline data-end=(time.high()) {
                    svg.phases aria-hidden="true" {
                        @for phase in measured.phases.iter().take(PHASES) {
                            @let ends = [phase.start_ns, phase.end_ns];
                            @let [from, to] = ends.map(|at| time.along(seconds(begin, at)));
                            svg.phase x=(from) { rect width=(to.less(from)) height="100%" {} }
                            @if time.share(took(phase)) > NAMED {
                                text x=(from) y="-5" { (phase_name(phase.kind)) }
                            }
                        }
                        @for tick in rates.ticks(5) {
                            line.grid x1="0" x2="100%" y1=(rates.down(tick)) y2=(rates.down(tick)) {}
                            text.y x="-6" y=(rates.down(tick)) { (short(tick)) }
                        }
                        @for tick in time.ticks(6) {
                            text.x x=(time.along(tick)) y="100%" dy="16" { (short(tick)) " s" }
                        }
                    }
                    svg.slices aria-hidden="true" viewBox=(view) preserveAspectRatio="none" {
                        path.with d=(path(|slice| !is_without(slice))) {}
                        path.without d=(path(is_without)) {}
                        path.dropped d=(dropped) {}
                    }
                }
                details {
                    summary { "numbers" }
                    (phases(measured))
                    @let rows = slices(measured, begin);
                    @if rows.0.len() <= listed {
                        (rows)
                    } @else {
                        p { (measured.slices.len()) " slices are in the JSON, one by one." }
                    }
                }
            }
        }
    }
}

fn is_without(slice: &Slice) -> bool {
    matches!(slice.treatment, Treatment::Control | Treatment::Placebo)
}

fn took(phase: &Phase) -> f64 {
    seconds(phase.start_ns, phase.end_ns)
}

/// Units per second of several slices together.
fn rate_of<'a>(slices: impl Iterator<Item = &'a Slice>) -> Option<f64> {
    let (units, span) = slices.fold((0.0, 0.0), |of, slice| (of.0 + slice.units, of.1 + slice.span()));
    (span > 0.0).then(|| units * 1e9 / span)
}

fn phases(measured: &Measured) -> Markup {
    let shown =
        |rate: Option<f64>| number(rate, &rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}")));
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "phase" } th.n scope="col" { "takes" } th.n scope="col" { "slices" }
                    th.n scope="col" { "dropped" } th.n scope="col" { "units/s without delays" }
                    th.n scope="col" { "with" } th scope="col" { "outcome" }
                }
            }
            tbody {
                @for phase in measured.phases.iter().take(PHASES) {
                    @let of = || measured.slices.iter().filter(|slice| slice.phase == phase.kind);
                    @let counts = || of().filter(|slice| slice.counts());
                    tr {
                        th scope="row" { (phase_name(phase.kind)) }
                        td.n { (format!("{:.1} s", took(phase))) }
                        td.n { (of().count()) }
                        td.n { (of().count() - counts().count()) }
                        td.n { (shown(rate_of(counts().filter(|slice| is_without(slice))))) }
                        td.n { (shown(rate_of(counts().filter(|slice| !is_without(slice))))) }
                        td { (sentence(&phase.outcome)) }
                    }
                }
            }
        }
    }
}

/// Slices of one phase that share one row.
fn rows(measured: &Measured) -> impl Iterator<Item = &[Slice]> {
    let each = measured.slices.len().div_ceil(LISTED).max(1);
    measured.slices.chunk_by(|one, other| one.phase == other.phase).flat_map(move |of| of.chunks(each))
}

/// The list of slices; scripts look up the slice under the pointer here.
fn slices(measured: &Measured, begin: Nanos) -> Markup {
    html! {
        table.slices {
            thead {
                tr {
                    th.n scope="col" { "from, s" } th.n scope="col" { "to, s" } th scope="col" { "phase" }
                    th scope="col" { "delays" } th.n scope="col" { "units/s" }
                }
            }
            tbody {
                @for slices in rows(measured) {
                    @if let (Some(first), Some(last)) = (slices.first(), slices.last()) {
                        @let rate = rate_of(slices.iter()).unwrap_or_default();
                        tr {
                            td.n { (format!("{:.2}", seconds(begin, first.start_ns))) }
                            td.n { (format!("{:.2}", seconds(begin, last.end_ns))) }
                            td { (phase_name(first.phase)) }
                            td { (told(measured, slices)) }
                            td.n { (number(Some(rate), &format!("{rate:.1}"))) }
                        }
                    }
                }
            }
        }
    }
}

/// What was delayed, and how many slices do not count.
fn told(measured: &Measured, slices: &[Slice]) -> String {
    let dropped = slices.iter().filter(|slice| !slice.counts()).count();
    match slices {
        [slice] if dropped > 0 => delays(measured, slice) + ", does not count",
        [slice] => delays(measured, slice),
        _ => {
            let with = slices.iter().filter(|slice| !is_without(slice)).count();
            let of = format!("{with} of {} slices", slices.len());
            if dropped > 0 { format!("{of}; {dropped} do not count") } else { of }
        }
    }
}

fn delays(measured: &Measured, slice: &Slice) -> String {
    match (slice.treatment, slice.doses.as_slice()) {
        (Treatment::Control, _) => "none".to_owned(),
        (Treatment::Placebo, _) => "of zero".to_owned(),
        (_, [(candidate, dose)]) => {
            let name = measured.candidates.get(*candidate as usize).map(candidate_name).unwrap_or_default();
            format!("{} {dose}", foreign(&name))
        }
        (_, doses) => format!("{} functions", doses.len()),
    }
}
