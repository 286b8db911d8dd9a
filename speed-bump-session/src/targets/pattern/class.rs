//! The class of a shell glob, `[seq]` and `[!seq]`. A class has the same meaning as in CPython's
//! `fnmatch.translate` (3.10 and later).

/// A set of characters. At this place, a text must have one of these characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::targets) struct Class {
    /// Whether the class has the characters that are *not* in `ranges`.
    negated: bool,
    /// The first and last character of each range. The first is never greater than the last.
    ranges: Vec<(char, char)>,
}

impl Class {
    /// Reads a class from the text after its `[`. Also returns the text after its `]`. Returns `None` if the
    /// class is never closed.
    ///
    /// A `]` that comes first, or directly after a leading `!`, is a member and does not close the class.
    pub(super) fn read(text: &str) -> Option<(Self, &str)> {
        let opening = if text.starts_with('!') { 1 } else { 0 };
        let first = if text[opening..].starts_with(']') { opening + 1 } else { opening };
        let close = first + text[first..].find(']')?;
        Some((Self::parse_set(&text[..close]), &text[close + 1..]))
    }

    /// The class with this text between its brackets.
    fn parse_set(text: &str) -> Self {
        let (mut negated, members) = match text.strip_prefix('!') {
            Some(members) => (true, members),
            None => (false, text),
        };
        let mut members = Member::all(members);
        members.retain(|member| !member.is_empty());
        // CPython first drops empty ranges, and only then checks for `!`: it reads `[b-a!x]` as `[!x]`, and
        // `[b-a!-x]` as `[!-x]` with an ordinary `-`. This is strange, but upstream gives the same line this
        // meaning.
        if !negated && matches!(members.first(), Some(Member::Char('!') | Member::Range('!', _))) {
            negated = true;
            if let Member::Range(_, last) = members.remove(0) {
                members.extend([Member::Char('-'), Member::Char(last)]);
            }
        }
        let ranges = members.into_iter().map(|member| match member {
            Member::Char(c) => (c, c),
            Member::Range(first, last) => (first, last),
        });
        Self { negated, ranges: ranges.collect() }
    }

    /// Whether the class contains the character.
    pub(super) fn contains(&self, c: char) -> bool {
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&c)) != self.negated
    }

    /// Whether the class has the characters that are not in the ranges.
    pub(in crate::targets) fn is_negated(&self) -> bool {
        self.negated
    }

    /// The first and last character of each range. The first is never greater than the last.
    pub(in crate::targets) fn ranges(&self) -> &[(char, char)] {
        &self.ranges
    }
}

/// A character or range between the brackets.
#[derive(Clone, Copy, Debug)]
enum Member {
    Char(char),
    /// The first and last character, as written.
    Range(char, char),
}

impl Member {
    /// Reads the members from left to right. `a-z` is a range if a character follows the `-`.
    fn all(text: &str) -> Vec<Self> {
        let mut members = Vec::new();
        let mut chars = text.chars();
        while let Some(first) = chars.next() {
            let mut ahead = chars.clone();
            members.push(match (ahead.next(), ahead.next()) {
                (Some('-'), Some(last)) => {
                    chars = ahead;
                    Self::Range(first, last)
                }
                _ => Self::Char(first),
            });
        }
        members
    }

    fn is_empty(self) -> bool {
        matches!(self, Self::Range(first, last) if first > last)
    }
}
