//! Whether the pieces of a pattern match a text.
//!
//! A glob has one kind of choice, how far each `*` reaches, and the least that lets the pieces up to the next
//! `*` match is as good as any: a later `*` makes up for it. So only the last `*` is ever tried again, and
//! the time is bounded by the length of the pattern times that of the text, whatever they are. The helper
//! does the same (`speed_bump_selector`).

use super::Piece;

/// Whether the pieces match the whole of `text`.
pub(super) fn matches(pieces: &[Piece], text: &str) -> bool {
    // Most names end otherwise.
    if matches!(pieces.last(), Some(Piece::Literal(literal)) if !text.ends_with(literal.as_str())) {
        return false;
    }
    let (mut pieces, mut rest) = (pieces, text);
    // The pieces after the last `*`, and the text from which they were tried last.
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

/// What follows the first character, if that is one of these.
fn without_first(text: &str, is_one: impl Fn(char) -> bool) -> Option<&str> {
    let mut chars = text.chars();
    chars.next().filter(|c| is_one(*c)).map(|_| chars.as_str())
}

/// The first place of `text` where the pieces after a `*` may match.
fn seek<'t>(pieces: &[Piece], text: &'t str) -> Option<&'t str> {
    match pieces {
        // It has to end the text.
        [Piece::Literal(literal)] => {
            text.ends_with(literal.as_str()).then(|| text.get(text.len() - literal.len()..)).flatten()
        }
        [Piece::Literal(literal), ..] => find(text, literal),
        _ => Some(text),
    }
}

/// The text from the first place on where the literal is. Most are a few letters, for which the standard
/// library's search takes longer to begin than to search.
fn find<'t>(text: &'t str, literal: &str) -> Option<&'t str> {
    let first = literal.chars().next()?;
    let mut places = text.match_indices(first).filter_map(|(at, _)| text.get(at..));
    places.find(|from| from.starts_with(literal))
}
