//! The options after the patterns of a line: words of the form `key=value`, or a bare number of nanoseconds.

use std::num::NonZeroU64;

use super::{caller::Caller, error::LineProblem};
use crate::units::Nanos;

/// The options of one target. An option that the line does not give is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) delay: Option<Nanos>,
    pub(super) frequency: Option<NonZeroU64>,
    pub(super) caller: Option<Caller>,
    pub(super) id: Option<String>,
}

/// The meaning of a word after the patterns.
enum Word<'a> {
    /// `key=value`
    Option { key: &'a str, value: &'a str },
    /// A bare number, or another word that looks like a time.
    Time,
    /// `#`, with any text after it.
    Comment,
    /// A part of a name, such as a word of `operator new(unsigned long)`.
    Name,
}

const KEYS: [&str; 4] = ["delay", "frequency", "caller", "id"];

/// Splits the text after the last separating `:` into the name pattern and the words of the options.
///
/// A name may contain white space (`operator delete(void*)`, `<generic parameters of f>`). A name ends before
/// the first word that can be an option. The first word of the text is an option only if its key is known.
pub(super) fn split(text: &str) -> (&str, Vec<&str>) {
    let text = text.trim();
    for (nth, word) in text.split_whitespace().enumerate() {
        let name_ends = match classify(word) {
            Word::Name => false,
            Word::Option { key, .. } => nth > 0 || KEYS.contains(&key),
            Word::Time | Word::Comment => nth > 0,
        };
        if name_ends {
            // Words are slices of `text`, in the order of the text.
            let at = text.split_whitespace().nth(nth).map_or(text.len(), |word| offset(text, word));
            let (name, options) = text.split_at(at);
            return (name.trim_end(), options.split_whitespace().collect());
        }
    }
    (text, Vec::new())
}

impl Options {
    /// Reads the words that [`split`] found after a name.
    pub(super) fn read(words: &[&str]) -> Result<Self, LineProblem> {
        let mut options = Self::default();
        for &word in words {
            match classify(word) {
                Word::Option { key, value } => options.set(key, value)?,
                Word::Time if word.bytes().all(|byte| byte.is_ascii_digit()) => options.set("delay", word)?,
                Word::Time => return Err(LineProblem::DelayWithoutKey { written: word.to_owned() }),
                Word::Comment => return Err(LineProblem::InlineComment),
                Word::Name => return Err(LineProblem::UnexpectedWord { word: word.to_owned() }),
            }
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), LineProblem> {
        match key {
            "delay" => once(&mut self.delay, "delay", delay(value)?),
            "frequency" => once(&mut self.frequency, "frequency", frequency(value)?),
            "caller" => once(&mut self.caller, "caller", Caller::read(value)?),
            "id" => once(&mut self.id, "id", id(value)?),
            key => Err(LineProblem::UnknownKey { key: key.to_owned() }),
        }
    }
}

fn once<T>(option: &mut Option<T>, key: &'static str, value: T) -> Result<(), LineProblem> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(LineProblem::RepeatedKey { key }),
    }
}

fn delay(text: &str) -> Result<Nanos, LineProblem> {
    let delay: Nanos = text.parse().map_err(LineProblem::Delay)?;
    if delay > Nanos::MAX_DELAY { Err(LineProblem::DelayTooLong { delay }) } else { Ok(delay) }
}

fn frequency(text: &str) -> Result<NonZeroU64, LineProblem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.ok_or_else(|| LineProblem::Frequency { written: text.to_owned() })
}

fn id(text: &str) -> Result<String, LineProblem> {
    if text.is_empty() || text.contains(char::is_control) {
        return Err(LineProblem::Id { written: text.to_owned() });
    }
    Ok(text.to_owned())
}

fn classify(word: &str) -> Word<'_> {
    if word.starts_with('#') {
        return Word::Comment;
    }
    if let Some((key, value)) = word.split_once('=')
        && key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        // In C++ this is part of a name: `bool operator==<int>`, `T& operator=`.
        && key != "operator"
    {
        return Word::Option { key, value };
    }
    let number = word.strip_prefix(['-', '+']).unwrap_or(word);
    if number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | 'µ' | 'μ'))
    {
        return Word::Time;
    }
    Word::Name
}

/// The byte offset of `part` in `text`. `part` must be a slice of `text`.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(text: &str) -> Result<(&str, Options), LineProblem> {
        let (name, words) = split(text);
        Options::read(&words).map(|options| (name, options))
    }

    #[test]
    fn options_follow_the_name() {
        let (name, options) = read(" f  delay=1.5ms frequency=100\tcaller=a.py:g id=hot ").unwrap();
        assert_eq!(name, "f");
        assert_eq!(options.delay, Some(Nanos(1_500_000)));
        assert_eq!(options.frequency, NonZeroU64::new(100));
        assert_eq!(options.id.as_deref(), Some("hot"));
        assert_eq!(options.caller, Some(Caller::read("a.py:g").unwrap()));
        assert_eq!(read("f 10000").unwrap().1.delay, Some(Nanos(10_000)));
        assert_eq!(read("f delay=10000").unwrap().1.delay, Some(Nanos(10_000)));
        assert_eq!(read("f delay=0").unwrap().1.delay, Some(Nanos(0)));
        assert_eq!(read("f delay=10s").unwrap().1.delay, Some(Nanos::MAX_DELAY));
        assert_eq!(read("f id=a=b").unwrap().1.id.as_deref(), Some("a=b"));
    }

    #[test]
    fn names_may_have_white_space() {
        for name in [
            "operator new(unsigned long)",
            "operator=",
            "bool operator==<int>(int const&)",
            "std::map<int, 5>::at",
            "<generic parameters of f>",
            "<A as Iterator<Item = B>>::next",
            "foo::{closure#0}",
            "#f",
            "100",
            "a=b",
            "f a.b=c",
            "[x y]",
        ] {
            assert_eq!(read(name).unwrap(), (name, Options::default()));
            let text = format!("{name}  delay=1");
            assert_eq!(read(&text).unwrap().0, name);
        }
    }

    #[test]
    fn a_known_key_is_never_a_name() {
        assert_eq!(read("delay=10us").unwrap().0, "");
    }

    #[test]
    fn wrong_options_are_refused() {
        type Expected = fn(&LineProblem) -> bool;
        let cases: [(&str, Expected); 25] = [
            ("f wait=1", |p| matches!(p, LineProblem::UnknownKey { key } if key == "wait")),
            ("f Delay=1us", |p| matches!(p, LineProblem::UnknownKey { .. })),
            ("f pid=17", |p| matches!(p, LineProblem::UnknownKey { .. })),
            ("f delay=1 delay=2", |p| matches!(p, LineProblem::RepeatedKey { key: "delay" })),
            ("f 1 delay=2", |p| matches!(p, LineProblem::RepeatedKey { key: "delay" })),
            ("f 1 2", |p| matches!(p, LineProblem::RepeatedKey { key: "delay" })),
            ("f id=a id=a", |p| matches!(p, LineProblem::RepeatedKey { key: "id" })),
            ("f frequency=1 frequency=1", |p| matches!(p, LineProblem::RepeatedKey { key: "frequency" })),
            ("f delay=", |p| matches!(p, LineProblem::Delay(_))),
            ("f delay=fast", |p| matches!(p, LineProblem::Delay(_))),
            ("f delay=-1us", |p| matches!(p, LineProblem::Delay(_))),
            ("f delay=0.5ns", |p| matches!(p, LineProblem::Delay(_))),
            ("f delay=10.000000001s", |p| matches!(p, LineProblem::DelayTooLong { .. })),
            ("f 10000000001", |p| matches!(p, LineProblem::DelayTooLong { .. })),
            ("f 99999999999999999999", |p| matches!(p, LineProblem::Delay(_))),
            ("f 10us", |p| matches!(p, LineProblem::DelayWithoutKey { .. })),
            ("f -1", |p| matches!(p, LineProblem::DelayWithoutKey { .. })),
            ("f frequency=0", |p| matches!(p, LineProblem::Frequency { .. })),
            ("f frequency=+1", |p| matches!(p, LineProblem::Frequency { .. })),
            ("f frequency=", |p| matches!(p, LineProblem::Frequency { .. })),
            ("f caller=", |p| matches!(p, LineProblem::Caller { .. })),
            ("f caller=a caller=a", |p| matches!(p, LineProblem::RepeatedKey { key: "caller" })),
            ("f id=", |p| matches!(p, LineProblem::Id { .. })),
            ("f delay=1 g", |p| matches!(p, LineProblem::UnexpectedWord { word } if word == "g")),
            ("f # hot", |p| matches!(p, LineProblem::InlineComment)),
        ];
        for (text, expected) in cases {
            let problem = read(text).unwrap_err();
            assert!(expected(&problem), "{text}: {problem:?}");
        }
    }
}
