//! The class of a shell glob, `[seq]` and `[!seq]`, read as `CPython`'s `fnmatch.translate` (3.10 and later)
//! reads it.

/// A set of characters, one of which has to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::targets) struct Class {
    /// The characters are those *not* in `ranges`.
    negated: bool,
    /// First and last character of each range; the first is never beyond the last.
    ranges: Vec<(char, char)>,
}

impl Class {
    /// Reads a class from what follows its `[`, and gives what follows its `]`; `None` when it is never
    /// closed.
    ///
    /// A `]` that comes first, or first after `!`, is a member and closes nothing.
    pub(super) fn read(text: &str) -> Option<(Self, &str)> {
        let opening = if text.starts_with('!') { 1 } else { 0 };
        let first = if text[opening..].starts_with(']') { opening + 1 } else { opening };
        let close = first + text[first..].find(']')?;
        Some((Self::parse_set(&text[..close]), &text[close + 1..]))
    }

    /// The class whose text between the brackets is `text`.
    fn parse_set(text: &str) -> Self {
        let (mut negated, members) = match text.strip_prefix('!') {
            Some(members) => (true, members),
            None => (false, text),
        };
        let mut members = Member::all(members);
        members.retain(|member| !member.is_empty());
        // CPython drops empty ranges first and looks for `!` then: `[b-a!x]` is `[!x]` to it, and `[b-a!-x]`
        // is `[!-x]` with an ordinary `-`. Strange, but it is what the same line means upstream.
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

    /// Whether the character is one of the class.
    pub(super) fn contains(&self, c: char) -> bool {
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&c)) != self.negated
    }

    /// Whether the characters are those not in the ranges.
    pub(in crate::targets) fn is_negated(&self) -> bool {
        self.negated
    }

    /// First and last character of each range; the first is never beyond the last.
    pub(in crate::targets) fn ranges(&self) -> &[(char, char)] {
        &self.ranges
    }
}

/// One thing that is written between the brackets.
#[derive(Clone, Copy, Debug)]
enum Member {
    Char(char),
    /// First and last, in the order in which they were written.
    Range(char, char),
}

impl Member {
    /// From left to right; `a-z` is a range wherever a character follows the `-`.
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
