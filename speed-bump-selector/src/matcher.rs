//! Matches a pattern with a text.
//!
//! A glob has one kind of choice: how far each `*` reaches. The shortest reach that lets the steps up to the
//! next `*` match is as good as any, since a later `*` can cover the rest. So we only ever retry the last
//! `*`, and the time is bounded by the length of the pattern times that of the text.

use crate::program::{Step, Steps, places};

/// How a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Unchanged.
    Plain,
    /// With each `/` as `.`: a path as a dotted name.
    Dotted,
}

impl Reading {
    pub(crate) fn byte(self, byte: u8) -> u8 {
        if self == Self::Dotted && byte == b'/' { b'.' } else { byte }
    }

    fn char(self, c: char) -> char {
        if self == Self::Dotted && c == '/' { '.' } else { c }
    }

    /// Whether `text`, in this reading, starts with `literal`.
    fn starts_with(self, text: &[u8], literal: &[u8]) -> bool {
        match (self, text.get(..literal.len())) {
            (_, None) => false,
            (Self::Plain, Some(text)) => text == literal,
            (Self::Dotted, Some(text)) => text.iter().zip(literal).all(|(a, b)| self.byte(*a) == *b),
        }
    }
}

/// Whether the program matches the whole of `text`.
pub(crate) fn matches(program: &[u8], text: &str, reading: Reading) -> bool {
    let mut steps = Steps(program);
    let mut rest = text;
    // The steps after the last `*`, and the text at which they were tried last.
    let mut again: Option<(Steps<'_>, &str)> = None;
    loop {
        let after = match steps.next() {
            Some(Step::AnyText) => {
                if steps.0.is_empty() {
                    return true;
                }
                let Some(from) = seek(steps, rest, reading) else { return false };
                again = Some((steps, from));
                Some(from)
            }
            Some(Step::One(set)) => {
                let mut chars = rest.chars();
                chars.next().filter(|c| set.contains(reading.char(*c))).map(|_| chars.as_str())
            }
            Some(Step::Literal(literal)) => {
                let here = reading.starts_with(rest.as_bytes(), literal);
                if here { rest.get(literal.len()..) } else { None }
            }
            None if rest.is_empty() => return steps.0.is_empty(),
            None => None,
        };
        if let Some(after) = after {
            rest = after;
            continue;
        }
        let Some((retry, from)) = again else { return false };
        let mut chars = from.chars();
        if chars.next().is_none() {
            return false;
        }
        let Some(from) = seek(retry, chars.as_str(), reading) else { return false };
        again = Some((retry, from));
        (steps, rest) = (retry, from);
    }
}

/// The first position in `text` where `steps` may match; `None` if there is none.
fn seek<'t>(mut steps: Steps<'_>, text: &'t str, reading: Reading) -> Option<&'t str> {
    let Some(Step::Literal(literal)) = steps.next() else { return Some(text) };
    let last = text.len().checked_sub(literal.len())?;
    if steps.0.is_empty() {
        // It must end the text.
        return text.get(last..);
    }
    let bytes = text.as_bytes();
    let here = |at: &usize| bytes.get(*at..).is_some_and(|from| reading.starts_with(from, literal));
    text.get((0..=last).find(here)?..)
}

/// Whether a program that [`check`](crate::program::check) described so may match a text whose last component
/// is `component`: `component` itself, or a text that ends in `.` and `component`.
///
/// `false` is certain. The steps before the last `*` are not checked.
pub(crate) fn may_end_in(tail: &[u8], tail_chars: usize, any_text: bool, component: &str) -> bool {
    let chars = component.chars().count();
    let fits = |skipped: usize, texts: &mut dyn Iterator<Item = char>| {
        places(Steps(tail)).skip(skipped).all(|place| texts.next().is_some_and(|c| place.contains(c)))
    };
    if tail_chars <= chars {
        let unread = chars.saturating_sub(tail_chars);
        (any_text || unread == 0) && fits(0, &mut component.chars().skip(unread))
    } else {
        let before = tail_chars.saturating_sub(chars).saturating_sub(1);
        fits(before, &mut core::iter::once('.').chain(component.chars()))
    }
}
