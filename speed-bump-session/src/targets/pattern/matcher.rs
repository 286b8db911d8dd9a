//! Matches the pieces of a pattern with a text.
//!
//! In a glob, the only question is how much text each `*` takes. Each `*` can take the shortest text after
//! which the pieces up to the next `*` match, because the next `*` can take any text that remains. So we only
//! ever try the last `*` again. The time is at most proportional to the length of the pattern times the
//! length of the text. The helper does the same (`speed_bump_selector`).

use super::Piece;

/// Whether the pieces match the whole of `text`.
pub(super) fn matches(pieces: &[Piece], text: &str) -> bool {
    // Most names fail this cheap check.
    if matches!(pieces.last(), Some(Piece::Literal(literal)) if !text.ends_with(literal.as_str())) {
        return false;
    }
    let (mut pieces, mut rest) = (pieces, text);
    // The pieces after the last `*`, and the text on which we last tried them.
    let mut again: Option<(&[Piece], &str)> = None;
    loop {
        let after = match pieces.split_first() {
            Some((Piece::AnyText, [])) => return true,
            Some((Piece::AnyText, after)) => {
                let Some(from) = seek(after, rest) else { return false };
                again = Some((after, from));
                pieces = after;
                rest = from;
                continue;
            }
            Some((Piece::Literal(literal), after)) => {
                rest.strip_prefix(literal.as_str()).map(|rest| (after, rest))
            }
            Some((Piece::AnyChar, after)) => without_first(rest, |_| true).map(|rest| (after, rest)),
            Some((Piece::OneOf(class), after)) => {
                without_first(rest, |c| class.contains(c)).map(|rest| (after, rest))
            }
            None if rest.is_empty() => return true,
            None => None,
        };
        if let Some(after) = after {
            (pieces, rest) = after;
            continue;
        }
        let Some((retry, from)) = again else { return false };
        let Some(from) = without_first(from, |_| true).and_then(|from| seek(retry, from)) else {
            return false;
        };
        again = Some((retry, from));
        (pieces, rest) = (retry, from);
    }
}

/// The text after its first character, if `is_one` accepts that character.
fn without_first(text: &str, is_one: impl Fn(char) -> bool) -> Option<&str> {
    let mut chars = text.chars();
    chars.next().filter(|c| is_one(*c)).map(|_| chars.as_str())
}

/// The rest of `text` from the first place where the pieces after a `*` may match.
fn seek<'t>(pieces: &[Piece], text: &'t str) -> Option<&'t str> {
    match pieces {
        // The last literal must end the text.
        [Piece::Literal(literal)] => {
            text.ends_with(literal.as_str()).then(|| text.get(text.len() - literal.len()..)).flatten()
        }
        [Piece::Literal(literal), ..] => find(text, literal),
        _ => Some(text),
    }
}

/// The rest of the text from the first occurrence of the literal. Most literals have a few letters. For these
/// literals, the standard library's search spends more time on its preparation than on the search.
fn find<'t>(text: &'t str, literal: &str) -> Option<&'t str> {
    let first = literal.chars().next()?;
    let mut places = text.match_indices(first).filter_map(|(at, _)| text.get(at..));
    places.find(|from| from.starts_with(literal))
}
