//! The program of a pattern: its steps, and the check that bytes are one.

use crate::layout::op;

/// A program, or the rest of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps<'b>(pub(crate) &'b [u8]);

/// A step of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'b> {
    /// `*`
    AnyText,
    /// One character.
    One(CharSet<'b>),
    /// Text that stands for itself; UTF-8 in a checked program.
    Literal(&'b [u8]),
}

/// The characters that one place of a pattern matches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CharSet<'b> {
    /// `?`
    Any,
    /// A class, or its opposite: the first and the last character of each range.
    Ranges { negated: bool, ranges: &'b [[u8; 8]] },
    /// One character of a literal.
    Char(char),
}

impl<'b> CharSet<'b> {
    pub(crate) fn contains(self, c: char) -> bool {
        match self {
            Self::Any => true,
            Self::Char(own) => own == c,
            Self::Ranges { negated, ranges } => {
                let mut ranges = ranges.iter().map(range);
                ranges.any(|(first, last)| (first..=last).contains(&u32::from(c))) != negated
            }
        }
    }
}

/// First and last character.
fn range(bytes: &[u8; 8]) -> (u32, u32) {
    let both = u64::from_le_bytes(*bytes);
    (both as u32, (both >> 32) as u32)
}

impl<'b> Iterator for Steps<'b> {
    type Item = Step<'b>;

    /// The next step; `None` at the end, or if the rest is invalid.
    fn next(&mut self) -> Option<Step<'b>> {
        let (&opcode, rest) = self.0.split_first()?;
        let (step, rest) = match opcode {
            op::ANY_TEXT => (Step::AnyText, rest),
            op::ANY_CHAR => (Step::One(CharSet::Any), rest),
            op::LITERAL => {
                let (literal, rest) = counted(rest, 1)?;
                (Step::Literal(literal), rest)
            }
            op::ONE_OF | op::NONE_OF => {
                let (ranges, rest) = counted(rest, 8)?;
                let (ranges, _) = ranges.as_chunks();
                (Step::One(CharSet::Ranges { negated: opcode == op::NONE_OF, ranges }), rest)
            }
            _ => return None,
        };
        self.0 = rest;
        Some(step)
    }
}

/// A count and that many items of `size` bytes; and the rest.
fn counted(bytes: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    rest.split_at_checked(count.checked_mul(size)?)
}

/// The results of checking a program; see the fields of the same names in
/// [`PatternRecord`](crate::layout::PatternRecord).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) least: usize,
    pub(crate) tail: usize,
    pub(crate) tail_chars: usize,
}

/// Checks a program; `None` if it is invalid.
pub(crate) fn check(program: &[u8]) -> Option<Shape> {
    let mut shape = Shape { least: 0, tail: 0, tail_chars: 0 };
    let mut steps = Steps(program);
    let mut any_text_before = false;
    while let Some(step) = steps.next() {
        let any_text = matches!(step, Step::AnyText);
        match step {
            Step::AnyText if any_text_before => return None,
            Step::AnyText => {
                shape.tail = program.len().checked_sub(steps.0.len())?;
                shape.tail_chars = 0;
            }
            Step::One(set) => {
                if let CharSet::Ranges { ranges, .. } = set {
                    let ends = |bytes| {
                        let (first, last) = range(bytes);
                        char::from_u32(first).zip(char::from_u32(last)).is_some_and(|(a, b)| a <= b)
                    };
                    if !ranges.iter().all(ends) {
                        return None;
                    }
                }
                shape.least = shape.least.checked_add(1)?;
                shape.tail_chars = shape.tail_chars.checked_add(1)?;
            }
            Step::Literal(literal) => {
                let text = core::str::from_utf8(literal).ok()?;
                shape.least = shape.least.checked_add(text.len())?;
                shape.tail_chars = shape.tail_chars.checked_add(text.chars().count())?;
            }
        }
        any_text_before = any_text;
    }
    steps.0.is_empty().then_some(shape)
}

/// The characters that steps without `*` match, one place at a time.
pub(crate) fn places(steps: Steps<'_>) -> impl Iterator<Item = CharSet<'_>> {
    steps.flat_map(|step| {
        let (one, literal) = match step {
            Step::One(set) => (Some(set), ""),
            Step::Literal(literal) => (None, core::str::from_utf8(literal).unwrap_or_default()),
            Step::AnyText => (None, ""),
        };
        one.into_iter().chain(literal.chars().map(CharSet::Char))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_stars_in_a_row_are_no_program() {
        let shape = Shape { least: 1, tail: 2, tail_chars: 1 };
        assert_eq!(check(&[op::ANY_CHAR, op::ANY_TEXT]), Some(Shape { tail_chars: 0, ..shape }));
        assert_eq!(check(&[op::ANY_TEXT, op::ANY_CHAR]), Some(Shape { tail: 1, ..shape }));
        assert_eq!(check(&[op::ANY_TEXT, op::ANY_TEXT]), None);
        assert!(check(&[op::ANY_TEXT, op::ANY_CHAR, op::ANY_TEXT]).is_some());
    }
}
