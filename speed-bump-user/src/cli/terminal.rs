//! Output to the user and to programs.
//!
//! Each line goes through [`printable`](crate::printable): most lines contain names that targets chose, and a
//! line break in such a name must not break the line. Text of several lines is [`Lines`].
//!
//! `println!` panics when its reader is gone (`list | head`, a closed ssh session). The tool ignores a
//! missing reader, above all while something is attached. If a write fails for another reason, such as a full
//! device, the command reports it at its end ([`lost`]).

use std::{
    env,
    fmt::{self, Display},
    io::{self, IsTerminal as _, Write as _, stdout},
    os::fd::AsFd,
    sync::OnceLock,
};

use crate::{printable::Printable, report::text::Style, stats::table::Size};

/// A terminal's size; a usual size if unknown.
pub fn size(terminal: impl AsFd) -> Size {
    let size = rustix::termios::tcgetwinsize(terminal);
    let (lines, columns) = size.map_or((0, 0), |size| (size.ws_row.into(), size.ws_col.into()));
    let known = |size: usize, usual| if size == 0 { usual } else { size };
    Size { lines: known(lines, 24), columns: known(columns, 80) }
}

/// The style of text on standard output: plain, or the terminal's width and colours. `NO_COLOR` turns colours
/// off (<https://no-color.org>).
pub fn style() -> Style {
    if !stdout().is_terminal() {
        return Style::PLAIN;
    }
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    Style { columns: size(stdout()).columns, colour: !is_set("NO_COLOR") && !is_dumb }
}

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output: results for programs.
    Output,
    /// Standard error: everything else, and what the user reads of a session.
    Errors,
}

impl Stream {
    /// The first error of a write to this stream.
    fn failure(self) -> &'static OnceLock<io::Error> {
        static OUTPUT: OnceLock<io::Error> = OnceLock::new();
        static ERRORS: OnceLock<io::Error> = OnceLock::new();
        match self {
            Self::Output => &OUTPUT,
            Self::Errors => &ERRORS,
        }
    }

    /// Notes the error of a write, if it failed.
    pub fn note(self, written: io::Result<()>) {
        if let Err(error) = written {
            let _ = self.failure().set(error);
        }
    }
}

/// The first failed write to a stream, unless its reader had gone.
pub fn lost(stream: Stream) -> Option<&'static io::Error> {
    stream.failure().get().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

/// Flushes standard output.
pub fn flush() {
    Stream::Output.note(stdout().flush());
}

/// Writes a line of the result to standard output.
pub fn print(line: impl Display) {
    print_as_is(&Printable(line).to_string());
}

/// Writes text to standard output without escaping: text for programs, or text without names from outside.
/// After a failed write it writes no more, so that a partial result does not look complete.
pub fn print_as_is(text: &str) {
    if Stream::Output.failure().get().is_none() {
        Stream::Output.note(writeln!(stdout().lock(), "{text}"));
    }
}

/// Standard output for lines of JSON, which are printable as they are.
pub fn for_programs() -> impl io::Write {
    stdout().lock()
}

/// Writes a line for the user to standard error.
pub fn tell(line: impl Display) {
    // In one write, since other programs may write there too.
    let line = format!("{}\n", Printable(line));
    Stream::Errors.note(io::stderr().lock().write_all(line.as_bytes()));
}

/// Writes text to standard error without escaping, like [`print_as_is`].
pub fn tell_as_is(text: &str) {
    Stream::Errors.note(writeln!(io::stderr().lock(), "{text}"));
}

/// Text of several lines. A line break within one of them came from outside and is escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<String>);

impl Lines {
    /// Adds a line below the others.
    pub fn push(&mut self, line: impl Into<String>) {
        self.0.push(line.into());
    }

    /// Puts `prefix` before the first line.
    #[must_use]
    pub fn after(mut self, prefix: &str) -> Self {
        match self.0.first_mut() {
            Some(first) => first.insert_str(0, prefix),
            None => self.push(prefix),
        }
        self
    }

    /// Writes them to standard output.
    pub fn print(&self) {
        self.0.iter().for_each(print);
    }

    /// Writes them to standard error.
    pub fn tell(&self) {
        self.0.iter().for_each(tell);
    }
}

impl<T: Into<String>> From<T> for Lines {
    fn from(line: T) -> Self {
        Self(vec![line.into()])
    }
}

impl<T: Into<String>> FromIterator<T> for Lines {
    fn from_iter<I: IntoIterator<Item = T>>(lines: I) -> Self {
        Self(lines.into_iter().map(Into::into).collect())
    }
}

impl Extend<Self> for Lines {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, others: I) {
        others.into_iter().for_each(|other| self.0.extend(other.0));
    }
}

impl Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, line) in self.0.iter().enumerate() {
            write!(f, "{}{}", if nth == 0 { "" } else { "\n" }, Printable(line))?;
        }
        Ok(())
    }
}

/// An error message of several lines.
impl std::error::Error for Lines {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_between_lines_are_lines_and_breaks_in_them_are_not() {
        let mut lines = Lines::from("line 3 selects nothing");
        lines.push("  similar names are a\nb");
        let lines = lines.after("warning: ");
        assert_eq!(lines.to_string(), "warning: line 3 selects nothing\n  similar names are a\\nb");
        let mut all = Lines::default();
        all.extend([lines.clone(), Lines::from("more")]);
        assert_eq!(all.to_string(), format!("{lines}\nmore"));
        assert_eq!(Lines::default().after("x"), Lines::from("x"));
    }
}
