//! The report as a table for people.

use std::fmt::Write as _;

use super::{
    report::{FunctionReport, SessionReport, TargetReport},
    times::TimesReport,
};
use crate::{
    elf::demangle::for_people,
    printable::{at_most, columns, printable},
    units::Nanos,
};

/// The widest that a cell is drawn, in columns of a terminal: a name may have thousands.
const CELL_COLUMNS: usize = 160;

/// How many functions of all targets a table shows unless told otherwise.
pub const FUNCTIONS_SHOWN: usize = 20;

/// Renders the final table: a line for each target, then its busiest functions.
pub fn render(report: &SessionReport, functions_shown: usize) -> String {
    let timed = is_timed(report);
    let mut rows = vec![heading("", timed)];
    for target in &report.targets {
        let mut row = vec![
            format!("{} [{}]", target.id, target.kind),
            target.calls.to_string(),
            target.delayed.to_string(),
            target.delivered_ns.to_string(),
            mean(target.delivered_ns.0, target.delayed),
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
    aligned(rows)
}

/// A terminal's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub lines: usize,
    /// Columns.
    pub columns: usize,
}

/// Renders the table that is refreshed while the session runs: the busiest functions of all targets, within
/// this size. Names give way to the numbers.
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

/// Shortens the first cells so that the rows fit, as far as that leaves something of them.
fn shortened(mut rows: Vec<Vec<String>>, most: usize) -> Vec<Vec<String>> {
    const LEAST: usize = 12;
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| columns(cell)).max();
    let numbers: usize = (1..width_of(&rows)).map(|column| 2 + widest(column).unwrap_or(0)).sum();
    let left = most.saturating_sub(numbers).max(LEAST);
    for first in rows.iter_mut().filter_map(|row| row.first_mut()) {
        *first = at_most(printable(&first), left);
    }
    rows
}

/// Cells of the longest row.
fn width_of(rows: &[Vec<String>]) -> usize {
    rows.iter().map(Vec::len).max().unwrap_or(0)
}

/// Cuts lines at so many columns.
fn within(text: String, most: usize) -> String {
    text.lines().map(|line| at_most(line.to_owned(), most) + "\n").collect()
}

/// Whether any function has times.
fn is_timed(report: &SessionReport) -> bool {
    report.targets.iter().flat_map(|target| &target.functions).any(|function| function.times.is_some())
}

fn heading(first: &str, timed: bool) -> Vec<String> {
    let cells = [first, "calls", "delayed", "delivered", "mean", "own", "cumulative"];
    cells.into_iter().take(if timed { 7 } else { 5 }).map(str::to_owned).collect()
}

/// A sum of own times means something; cumulative times have each other in them.
fn times_of_target(target: &TargetReport) -> [String; 2] {
    let own = target.functions.iter().filter_map(|function| function.times).map(|times| times.own_ns.0);
    let own = own.reduce(u64::saturating_add);
    [own.map_or_else(nothing, |own| Nanos(own).to_string()), nothing()]
}

/// Where there is nothing to say.
fn nothing() -> String {
    "-".to_owned()
}

fn remainder(text: String) -> Vec<String> {
    vec![text]
}

/// The first column to the left, the numbers to the right. What cells hold from outside becomes printable
/// here.
fn aligned(mut rows: Vec<Vec<String>>) -> String {
    let mut widths = vec![0; width_of(&rows)];
    for row in &mut rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *cell = at_most(printable(&cell), CELL_COLUMNS);
            *width = (*width).max(columns(cell));
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a string cannot fail.
            let _ = match number {
                0 => write!(line, "{cell}{:padding$}", "", padding = width.saturating_sub(columns(cell))),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn function_row(indent: &str, function: &FunctionReport, timed: bool) -> Vec<String> {
    let file = function.file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let place = match function.line {
        Some(line) => format!("{file}:{line}"),
        None => file.into_owned(),
    };
    // What is not mangled is shown as it is: Python's names never begin like this.
    let name = for_people(&function.name);
    let name = name.as_deref().unwrap_or(&function.name);
    let mut row = vec![
        format!("{indent}{name} ({place})"),
        function.calls.to_string(),
        function.delayed.to_string(),
        function.delivered_ns.to_string(),
        mean(function.delivered_ns.0, function.delayed),
    ];
    if timed {
        let of = |time: fn(TimesReport) -> Nanos| {
            function.times.map_or_else(nothing, |times| time(times).to_string())
        };
        row.extend([of(|times| times.own_ns), of(|times| times.cumulative_ns)]);
    }
    row
}

/// What a delayed call lost on average.
fn mean(delivered_ns: u64, delayed: u64) -> String {
    match delivered_ns.checked_div(delayed) {
        Some(mean) => Nanos(mean).to_string(),
        None => nothing(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{engine::EngineKind, stats::report::SCHEMA, targets::TargetKind, units::Pid};

    #[test]
    fn mangled_names_are_shown_as_they_are_written() {
        let row = |name| function_row("", &function(name, 1, 1), false)[0].clone();
        assert!(row("_ZN2ns1fEi").starts_with("ns::f(int) ("), "{}", row("_ZN2ns1fEi"));
        assert!(row("_Zebra").starts_with("_Zebra ("), "{}", row("_Zebra"));
        assert!(row("work_hot").starts_with("work_hot ("), "{}", row("work_hot"));
    }

    fn function(name: &str, calls: u64, delivered_ns: u64) -> FunctionReport {
        FunctionReport {
            name: name.into(),
            file: "/a/b.py".into(),
            line: Some(7),
            calls,
            delayed: calls,
            missed: 0,
            requested_ns: Nanos(delivered_ns),
            delivered_ns: Nanos(delivered_ns),
            times: None,
        }
    }

    fn report(functions: Vec<FunctionReport>) -> SessionReport {
        let mut target = TargetReport {
            id: "t".into(),
            kind: TargetKind::Python,
            pattern: "*:*".into(),
            engine: EngineKind::Bpf,
            entry: None,
            floor_ns: Nanos(0),
            requested_ns: Nanos(10),
            frequency: 1,
            calls: 0,
            delayed: 0,
            missed: 0,
            delivered_ns: Nanos(0),
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
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_final_table_sums_up_targets_and_lists_the_busiest_functions() {
        let text = render(&report(vec![function("f", 2, 20), function("K.m", 3, 40)]), 20);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "                calls  delayed  delivered  mean",
                "t [py]              5        5       60ns  12ns",
                "  K.m (b.py:7)      3        3       40ns  13ns",
                "  f (b.py:7)        2        2       20ns  10ns",
            ]
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
        assert!(heading.ends_with("mean           own  cumulative"), "{text}");
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
        for most in [200, 60, 45] {
            let text = render_live(&report, Size { lines: 24, columns: most });
            assert!(text.lines().all(|line| columns(line) <= most), "{text}");
            assert!(text.contains("1.235ms"), "numbers stay: {text}");
            assert_eq!(text.contains(name), most == 200, "{text}");
        }
        let text = render_live(&report, Size { lines: 24, columns: 20 });
        assert!(text.lines().all(|line| columns(line) <= 20), "{text}");
    }
}
