//! Makes text from outside safe to show on a terminal.
//!
//! Names of functions, files and processes, and all else that a target wrote, may contain escape sequences
//! that a terminal obeys, invisible marks that reverse a line, and line breaks, which make one line look like
//! two. All that is printed, logged or drawn goes through here, a line at a time: invisible characters are
//! written out, as `\x1b`, `\n` or `\u{202e}`. A second pass changes nothing. Reports as JSON are exact, and
//! do not go through here.

use std::fmt::{self, Display, Write};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Displays a value as one line of visible characters.
#[derive(Clone, Copy, Debug)]
pub struct Printable<T>(pub T);

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// A value as one line of visible characters.
pub fn printable(text: impl Display) -> String {
    Printable(text).to_string()
}

/// JSON text for printing, with everything in its strings visible: the same values in another notation.
pub fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // Line breaks are between values: those in strings are escaped already.
        if c == '\n' || is_visible(c) {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut shown = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| !is_visible(*c)) {
            self.0.write_str(&text[shown..at])?;
            match c {
                '\n' => self.0.write_str("\\n")?,
                '\r' => self.0.write_str("\\r")?,
                '\t' => self.0.write_str("\\t")?,
                '\0'..='\x7f' => write!(self.0, "\\x{:02x}", u32::from(c))?,
                _ => write!(self.0, "{}", c.escape_unicode())?,
            }
            shown = at + c.len_utf8();
        }
        self.0.write_str(&text[shown..])
    }
}

/// Whether a character is visible, or belongs to one that is (accents, variants).
pub fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Characters that Unicode classes as letters, symbols or accents, but that are invisible. They are all of
    // Default_Ignorable_Code_Point that the standard library prints, except the variants of emoji.
    let is_empty = matches!(
        c,
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}'
            | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
    );
    // The standard library escapes controls, formats, separators and unassigned characters. It escapes an
    // accent unless that follows another character.
    let mut after_a_letter = [b'a'; 5];
    let length = c.encode_utf8(&mut after_a_letter[1..]).len();
    let text = std::str::from_utf8(&after_a_letter[..=length]).unwrap_or_default();
    !is_empty && text.escape_debug().count() == 2
}

/// How many columns of a terminal a text takes.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// The most columns of a name in output for people.
pub const NAME_COLUMNS: usize = 100;

/// A name from outside, which may contain anything and have any length, as a line of visible characters.
pub fn printable_name(name: impl Display) -> String {
    at_most(printable(name), NAME_COLUMNS)
}

/// The most characters that we show for each column. Accents take no column, so a name could have any number
/// of them.
const MARKS: usize = 2;

/// The beginning of a text, in at most this many columns; `…` marks an omission.
pub fn at_most(text: String, most: usize) -> String {
    let longest = most.saturating_mul(MARKS);
    if columns(&text) <= most && text.chars().nth(longest).is_none() {
        return text;
    }
    let (mut taken, mut characters) = (0, 0);
    let fits = |c: &char| {
        taken += c.width().unwrap_or_default();
        characters += 1;
        taken < most && characters < longest
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        for (text, shown) in [
            ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
            ("a\nb\r\tc\0\x7f", "a\\nb\\r\\tc\\x00\\x7f"),
            ("\u{85}\u{9b}", "\\u{85}\\u{9b}"),
            (
                "\u{202e}\u{2066}\u{200b}\u{200d}\u{200f}\u{2028}\u{2029}\u{feff}\u{ad}",
                "\\u{202e}\\u{2066}\\u{200b}\\u{200d}\\u{200f}\\u{2028}\\u{2029}\\u{feff}\\u{ad}",
            ),
            ("\u{e0041}\u{3164}\u{34f}", "\\u{e0041}\\u{3164}\\u{34f}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn what_can_be_seen_stays() {
        for text in [
            "",
            "K.method (a.py:7)",
            "\\x1b",
            "naïve",
            "cafe\u{301}",
            "函数",
            "имя",
            "שם",
            "→ … µ",
            "❤\u{fe0f}",
            "\u{fffd}",
        ] {
            assert_eq!(printable(text), text);
        }
    }

    #[test]
    fn json_keeps_its_values() {
        for text in ["plain", "\x1b]0;t\x07\n\t", "\u{9b}\u{7f}\u{202e}\u{e0041}函数"] {
            let shown = printable_json(&serde_json::to_string_pretty(&[text]).unwrap());
            assert!(shown.chars().all(|c| c == '\n' || is_visible(c)), "{shown}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [text]);
        }
    }

    #[test]
    fn columns_are_those_of_a_terminal() {
        for (text, width) in [("abc", 3), ("函数", 4), ("cafe\u{301}", 4), ("", 0)] {
            assert_eq!(columns(text), width, "{text}");
        }
        assert_eq!(at_most("函数名".into(), 6), "函数名");
        assert_eq!(at_most("函数名".into(), 5), "函数…");
        assert_eq!(at_most("函数名".into(), 4), "函…");
        assert_eq!(at_most("abc".into(), 2), "a…");
    }

    proptest! {
        #[test]
        fn any_text_becomes_a_line_that_can_be_seen(text in "(\\PC|.|\n|[\u{0}-\u{2fff}]){0,40}") {
            let shown = printable(&text);
            prop_assert!(shown.chars().all(is_visible));
            prop_assert_eq!(printable(&shown), shown);
        }

        #[test]
        fn a_shortened_text_fits(text in "\\PC{0,40}", most in 1_usize..30) {
            prop_assert!(columns(&at_most(text, most)) <= most);
        }
    }
}
