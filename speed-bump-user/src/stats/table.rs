//! The report as a table for people.

use std::fmt::Write as _;

use super::report::{FunctionReport, SessionReport};

/// How many functions of all targets a table shows unless told otherwise.
pub const FUNCTIONS_SHOWN: usize = 20;

/// Renders the table: a line for each target, then its busiest functions.
pub fn render(report: &SessionReport, functions_shown: usize) -> String {
    let mut rows = vec![["".into(), "calls".into(), "delayed".into(), "delivered".into(), "mean".into()]];
    for target in &report.targets {
        let mean = mean(target.delivered_ns.0, target.delayed);
        rows.push([
            format!("{} [{}]", target.id, target.kind),
            target.calls.to_string(),
            target.delayed.to_string(),
            target.delivered_ns.to_string(),
            mean,
        ]);
        let share = functions_shown.div_ceil(report.targets.len().max(1)).max(3);
        let shown = target.functions.iter().filter(|function| function.calls > 0).take(share);
        rows.extend(shown.map(function_row));
        let left = target.functions.len().saturating_sub(share);
        if left > 0 {
            rows.push([format!("  … {left} more functions"), "".into(), "".into(), "".into(), "".into()]);
        }
    }
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for [first, cells @ ..] in &rows {
        let mut line = format!("{first:<width$}", width = widths[0]);
        for (cell, width) in cells.iter().zip(&widths[1..]) {
            // Writing to a string cannot fail.
            let _ = write!(line, "  {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn function_row(function: &FunctionReport) -> [String; 5] {
    let file = function.file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let place = match function.line {
        Some(line) => format!("{file}:{line}"),
        None => file.into_owned(),
    };
    [
        format!("  {} ({place})", function.name),
        function.calls.to_string(),
        function.delayed.to_string(),
        function.delivered_ns.to_string(),
        mean(function.delivered_ns.0, function.delayed),
    ]
}

/// What a delayed call lost on average.
fn mean(delivered_ns: u64, delayed: u64) -> String {
    match delivered_ns.checked_div(delayed) {
        Some(mean) => crate::units::Nanos(mean).to_string(),
        None => "-".into(),
    }
}
