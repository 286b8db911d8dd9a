//! The table that is drawn anew while a session runs.

use std::io::{Write as _, stderr};

use indicatif::{ProgressBar, ProgressStyle};

use super::terminal::size;
use crate::stats::{
    report::SessionReport,
    table::{self, Size},
};

/// A table on the terminal.
pub(super) struct LiveTable {
    bar: ProgressBar,
    /// How many lines the last table has, and the terminal's columns then.
    drawn: Option<(usize, usize)>,
}

impl LiveTable {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self { bar, drawn: None }
    }

    /// Draws the table in the place of the last one.
    pub(super) fn draw(&mut self, report: &SessionReport) {
        self.draw_text(|size| table::render_live(report, size));
    }

    /// Draws a text in the place of the last table. `text` gets the largest size that the text may have.
    pub(super) fn draw_text(&mut self, text: impl FnOnce(Size) -> String) {
        let terminal = size(stderr());
        // A text of this size neither scrolls nor wraps: some terminals wrap behind the last column.
        let size =
            Size { lines: terminal.lines.saturating_sub(2), columns: terminal.columns.saturating_sub(1) };
        let text = text(size);
        if let Some((lines, columns)) = self.drawn
            && columns != terminal.columns
        {
            let _ = stderr().lock().write_all(resized(lines, columns, terminal.columns).as_bytes());
        }
        self.drawn = Some((text.lines().count(), terminal.columns));
        self.bar.set_message(text);
    }

    /// Removes the table.
    pub(super) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// What erases a table that the terminal has wrapped anew, and puts the cursor where indicatif left it.
///
/// indicatif fills each line to the last column, and the next one follows without a line break. So the table
/// is one line to a terminal, which takes more or fewer rows when it becomes narrower or wider; indicatif
/// would go up as many as there were. (Terminals that never wrap anew, such as xterm, lose rows above a table
/// that became narrower.)
fn resized(lines: usize, before: usize, now: usize) -> String {
    let rows = (lines * before).div_ceil(now.max(1));
    let up = |rows: usize| if rows == 0 { String::new() } else { format!("\x1b[{rows}A") };
    format!("{}\r\x1b[J{}", up(rows.saturating_sub(1)), "\n".repeat(lines.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_erased_as_the_terminal_has_wrapped_it() {
        // Three lines of 80 columns are six rows of 40, or two of 120.
        assert_eq!(resized(3, 80, 40), "\x1b[5A\r\x1b[J\n\n");
        assert_eq!(resized(3, 80, 120), "\x1b[1A\r\x1b[J\n\n");
        assert_eq!(resized(3, 80, 240), "\r\x1b[J\n\n");
        assert_eq!(resized(1, 80, 79), "\x1b[1A\r\x1b[J");
        assert_eq!(resized(0, 80, 0), "\r\x1b[J");
    }
}
