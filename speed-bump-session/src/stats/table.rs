//! The report as a table for the user.

use std::fmt::Write as _;

use super::{
    inexact::Inexact,
    report::{FunctionReport, SessionReport, TargetReport},
    times::TimesReport,
};
use crate::{
    demangle::for_people,
    printable::{at_most, printable},
    report::table::{CELL_COLUMNS, aligned, place, shortened, within},
    units::Nanos,
};

/// How many functions a table shows by default, over all targets.
pub const FUNCTIONS_SHOWN: usize = 20;

/// How many functions with excessive delays the text below the table names.
const INEXACT_NAMED: usize = 5;

/// The final table: a line for each target, followed by its busiest functions.
pub fn render(report: &SessionReport, functions_shown: usize) -> String {
    let timed = is_timed(report);
    let mut rows = vec![heading("", timed)];
    for target in &report.targets {
        let mut row = vec![
            format!("{} [{}]", target.id, target.kind),
            target.calls.to_string(),
            target.delayed.to_string(),
            target.delivered_ns.to_string(),
            mean(target.delivered_ns.0, target.delayed, target.inexact.is_some()),
            median(target.median_ns),
        ];
        if timed {
            row.extend(times_of_target(target));
        }
        rows.push(row);
        let share = functions_shown.div_ceil(report.targets.len().max(1)).max(3);
        rows.extend(target.functions.iter().take(share).map(|function| function_row("  ", function, timed)));
        let left = target.functions.len().saturating_sub(share);
        if left > 0 {
            rows.push(remainder(format!("  … {left} more functions")));
        }
    }
    aligned(rows) + &inexact(report)
}

/// The text below the table about mean delays that exceed their requests. The worst one comes first.
fn inexact(report: &SessionReport) -> String {
    let functions = report.targets.iter().flat_map(|target| &target.functions);
    let mut functions: Vec<_> =
        functions.filter_map(|function| Some((function, function.inexact?))).collect();
    if functions.is_empty() {
        return String::new();
    }
    functions.sort_by_key(|(_, inexact)| std::cmp::Reverse(inexact.over));
    let mut text = format!("{MARK} over the request by a tenth and more, in the mean:\n");
    for (function, Inexact { over, cause }) in functions.iter().take(INEXACT_NAMED) {
        let share = interrupted_share(function.interrupted, function.delayed);
        let name = at_most(printable(name_of(function)), CELL_COLUMNS);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name}: {over} times the request{share}; {cause}");
    }
    if functions.len() > INEXACT_NAMED {
        let _ = writeln!(text, "  … {} more functions", functions.len() - INEXACT_NAMED);
    }
    text
}

/// Text such as `, 31 % of its delays were interrupted`; empty if unknown.
fn interrupted_share(interrupted: Option<u64>, delayed: u64) -> String {
    let share = interrupted.and_then(|count| count.saturating_mul(100).checked_div(delayed));
    share.map_or_else(String::new, |share| format!(", {share} % of its delays were interrupted"))
}

/// The line about excessive delays in the whole session; `None` if there were none.
pub fn session_inexact(report: &SessionReport) -> Option<String> {
    let Inexact { over, cause } = report.inexact?;
    let way_out = cause.way_out();
    Some(format!("delays were {over} times what was asked for, on average: {cause}{way_out}"))
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The height in lines of text.
    pub lines: usize,
    /// The width in columns. A wide character takes two.
    pub columns: usize,
}

/// The table that we refresh during the session: the busiest functions of all targets, within this size. If
/// numbers need the room, we shorten names.
pub fn render_live(report: &SessionReport, size: Size) -> String {
    let mut functions: Vec<&FunctionReport> =
        report.targets.iter().flat_map(|target| &target.functions).collect();
    functions.sort_by_key(|function| std::cmp::Reverse((function.delivered_ns, function.calls)));
    let shown = size.lines.saturating_sub(2).max(1);
    let timed = is_timed(report);
    let mut rows = vec![heading("function", timed)];
    rows.extend(functions.iter().take(shown).map(|function| function_row("", function, timed)));
    if functions.len() > shown {
        rows.push(remainder(format!("… {} more functions", functions.len() - shown)));
    }
    within(aligned(shortened(rows, size.columns)), size.columns)
}

/// Whether any function has times.
fn is_timed(report: &SessionReport) -> bool {
    report.targets.iter().flat_map(|target| &target.functions).any(|function| function.times.is_some())
}

fn heading(first: &str, timed: bool) -> Vec<String> {
    let cells = [first, "calls", "delayed", "delivered", "mean", "median", "own", "cumulative"];
    cells.into_iter().take(if timed { 8 } else { 6 }).map(str::to_owned).collect()
}

/// We can add up own times of functions. Cumulative times overlap, so we cannot add them up.
fn times_of_target(target: &TargetReport) -> [String; 2] {
    let own = target.functions.iter().filter_map(|function| function.times).map(|times| times.own_ns.0);
    let own = own.reduce(u64::saturating_add);
    [own.map_or_else(nothing, |own| Nanos(own).to_string()), nothing()]
}

/// An empty cell.
fn nothing() -> String {
    "-".to_owned()
}

fn remainder(text: String) -> Vec<String> {
    vec![text]
}

fn function_row(indent: &str, function: &FunctionReport, timed: bool) -> Vec<String> {
    let place = place(&function.file, function.line);
    let mut row = vec![
        format!("{indent}{} ({place})", name_of(function)),
        function.calls.to_string(),
        function.delayed.to_string(),
        function.delivered_ns.to_string(),
        mean(function.delivered_ns.0, function.delayed, function.inexact.is_some()),
        median(function.median_ns),
    ];
    if timed {
        let of = |time: fn(TimesReport) -> Nanos| {
            function.times.map_or_else(nothing, |times| time(times).to_string())
        };
        row.extend([of(|times| times.own_ns), of(|times| times.cumulative_ns)]);
    }
    row
}

/// The name in its source language. A name that is not mangled stays unchanged. Python's names never look
/// mangled.
fn name_of(function: &FunctionReport) -> String {
    for_people(&function.name).unwrap_or_else(|| function.name.clone())
}

/// The mark before a mean that exceeds its request.
const MARK: char = '!';

/// The mean time that a delayed call loses.
fn mean(delivered_ns: u64, delayed: u64, is_inexact: bool) -> String {
    match delivered_ns.checked_div(delayed) {
        Some(mean) if is_inexact => format!("{MARK} {}", Nanos(mean)),
        Some(mean) => Nanos(mean).to_string(),
        None => nothing(),
    }
}

/// The median time that a delayed call loses.
fn median(median_ns: Option<Nanos>) -> String {
    median_ns.map_or_else(|| "-".into(), |median| median.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use speed_bump_abi::{FunctionStats, Histogram};

    use super::*;
    use crate::printable::columns;
    use crate::{
        engine::EngineKind,
        stats::{
            inexact::Waited,
            report::{SCHEMA, TargetReport},
        },
        targets::TargetKind,
        units::Pid,
    };

    #[test]
    fn mangled_names_are_shown_as_they_are_written() {
        let row = |name| function_row("", &function(name, 1, 1), false)[0].clone();
        assert!(row("_ZN2ns1fEi").starts_with("ns::f(int) ("), "{}", row("_ZN2ns1fEi"));
        assert!(row("_Zebra").starts_with("_Zebra ("), "{}", row("_Zebra"));
        assert!(row("work_hot").starts_with("work_hot ("), "{}", row("work_hot"));
    }

    fn function(name: &str, calls: u64, delivered_ns: u64) -> FunctionReport {
        let stats = FunctionStats {
            calls,
            delayed: calls,
            requested_ns: delivered_ns,
            delivered_ns,
            ..FunctionStats::default()
        };
        FunctionReport::new(name.into(), "/a/b.py".into(), Some(7), stats)
    }

    fn report(functions: Vec<FunctionReport>) -> SessionReport {
        let mut target = TargetReport {
            id: "t".into(),
            kind: TargetKind::Python,
            pattern: "*:*".into(),
            caller: None,
            engine: EngineKind::Bpf,
            entry: None,
            floor_ns: Nanos(0),
            cold_floor_ns: Nanos(0),
            requested_ns: Nanos(10),
            frequency: 1,
            calls: 0,
            delayed: 0,
            missed: 0,
            bounded: 0,
            delivered_ns: Nanos(0),
            median_ns: None,
            interrupted: None,
            inexact: None,
            functions: Vec::new(),
        };
        target.set_functions(functions);
        SessionReport {
            schema: SCHEMA,
            pid: Pid::own(),
            pids: vec![Pid::own()],
            processes: 1,
            engine: EngineKind::Bpf,
            duration: Duration::from_secs(1),
            targets: vec![target],
            inexact: None,
            warnings: Vec::new(),
            missed_calls: Vec::new(),
        }
    }

    #[test]
    fn the_final_table_sums_up_targets_and_lists_the_busiest_functions() {
        let text = render(&report(vec![function("f", 2, 20), function("K.m", 3, 40)]), 20);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "                calls  delayed  delivered  mean  median",
                "t [py]              5        5       60ns  12ns       -",
                "  K.m (b.py:7)      3        3       40ns  13ns       -",
                "  f (b.py:7)        2        2       20ns  10ns       -",
            ]
        );
    }

    #[test]
    fn means_that_are_over_are_marked_and_explained() {
        let asked = Nanos(1_000_000);
        let mut histogram = Histogram::default();
        histogram.words[Histogram::FIRST] = 3;
        histogram.words[Histogram::position(4_000_000, asked.0)] = 1;
        histogram.words[Histogram::INTERRUPTED] = 1;
        let mut f = function("f", 4, 7_000_000);
        f.requested_ns = Nanos(4 * asked.0);
        let f = f.with_histogram(Some(&histogram));
        let mut report = report(vec![f, function("g", 4, 4 * asked.0)]);
        assert_eq!(session_inexact(&report), None);
        let waited = Waited { for_processor: Nanos(3_000_000), ..Waited::default() };
        report.judge(Some(&waited));
        let text = render(&report, 20);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(row("  f (").ends_with("! 1.75ms     1ms"), "{text}");
        assert!(row("  g (").ends_with("  1ms       -"), "{text}");
        let below = "  f: 1.75 times the request, 25 % of its delays were interrupted; preemption";
        assert!(row("  f: ").starts_with(below), "{text}");
        assert!(!text.contains("  g: "), "{text}");
        let session = session_inexact(&report).unwrap_or_default();
        assert!(
            session.starts_with("delays were 1.38 times what was asked for, on average: pre"),
            "{session}"
        );
    }

    #[test]
    fn times_have_columns_of_their_own_where_there_are_any() {
        let times = |own, cumulative| {
            Some(TimesReport {
                own_ns: Nanos(own),
                cumulative_ns: Nanos(cumulative),
                ..TimesReport::default()
            })
        };
        let timed = FunctionReport { times: times(5, 45), ..function("f", 2, 20) };
        let another = FunctionReport { times: times(u64::MAX, 1), ..function("g", 1, 1) };
        let report = report(vec![timed, another, function("native", 0, 0)]);
        let text = render(&report, 20);
        let lines: Vec<&str> = text.lines().collect();
        let [heading, target, f, .., native] = lines[..] else { unreachable!("{text}") };
        assert!(heading.ends_with("median              own  cumulative"), "{text}");
        assert!(target.ends_with("18446744073.71s           -"), "{text}");
        assert!(f.ends_with("5ns        45ns") && native.ends_with("-           -"), "{text}");
        let live = render_live(&report, Size { lines: 24, columns: 200 });
        assert!(live.lines().next().is_some_and(|line| line.ends_with("cumulative")), "{live}");
    }

    #[test]
    fn the_live_table_keeps_to_its_lines() {
        let many = (0..100).map(|index| function(&format!("f{index}"), index, index)).collect();
        let text = render_live(&report(many), Size { lines: 5, columns: 80 });
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("f99") && text.contains("97 more functions"), "{text}");
    }

    #[test]
    fn the_live_table_keeps_to_its_columns() {
        let name = "a_name_that_is_far_too_long_for_a_small_terminal";
        let report = report(vec![function(name, 3, 1_234_567)]);
        for most in [200, 70, 55] {
            let text = render_live(&report, Size { lines: 24, columns: most });
            assert!(text.lines().all(|line| columns(line) <= most), "{text}");
            assert!(text.contains("1.235ms"), "numbers stay: {text}");
            assert_eq!(text.contains(name), most == 200, "{text}");
        }
        let text = render_live(&report, Size { lines: 24, columns: 20 });
        assert!(text.lines().all(|line| columns(line) <= 20), "{text}");
    }
}
