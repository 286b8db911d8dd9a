//! Tables as text.

use std::{fmt::Write as _, path::Path};

use crate::printable::{at_most, columns, printable};

/// The largest width of a cell, in columns of a terminal: a name may have thousands.
pub const CELL_COLUMNS: usize = 160;

/// Cuts the first cells so that the rows fit, down to a minimum. A row of one cell is a title, and stays
/// whole.
pub fn shortened(mut rows: Vec<Vec<String>>, most: usize) -> Vec<Vec<String>> {
    const MIN: usize = 12;
    let widest =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| columns(cell)).max();
    let numbers: usize = (1..width_of(&rows)).map(|column| 2 + widest(column).unwrap_or(0)).sum();
    let left = most.saturating_sub(numbers).max(MIN);
    for first in rows.iter_mut().filter(|row| row.len() > 1).filter_map(|row| row.first_mut()) {
        *first = at_most(printable(&first), left);
    }
    rows
}

/// Number of cells of the longest row.
fn width_of(rows: &[Vec<String>]) -> usize {
    rows.iter().map(Vec::len).max().unwrap_or(0)
}

/// Cuts lines at this many columns.
pub fn within(text: String, most: usize) -> String {
    text.lines().map(|line| at_most(line.to_owned(), most) + "\n").collect()
}

/// Aligns rows: the first column to the left, the others to the right. A row of one cell is a title, and
/// makes no column wider. Makes each cell printable.
pub fn aligned(mut rows: Vec<Vec<String>>) -> String {
    let mut widths = vec![0; width_of(&rows)];
    for row in &mut rows {
        let is_title = row.len() == 1;
        for (width, cell) in widths.iter_mut().zip(row) {
            *cell = at_most(printable(&cell), CELL_COLUMNS);
            *width = if is_title { *width } else { (*width).max(columns(cell)) };
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

/// The place of a function: `app.py:12`.
pub fn place(file: &Path, line: Option<u32>) -> String {
    let file = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    match line {
        Some(line) => format!("{file}:{line}"),
        None => file.into_owned(),
    }
}
