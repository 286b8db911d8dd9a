//! Random patterns, and names that have a fair chance to match them.

use proptest::prelude::*;

use super::{Piece, pieces};

/// Characters with a meaning in a glob, in a regular expression, or in an encoding.
const ODD: &str = r"[[[[]]]]!!!^^---**???\\{},&&~~||.:/$()+#aabbzAZ09 é漢😀";

fn odd_char() -> impl Strategy<Value = char> {
    prop_oneof![
        30 => proptest::sample::select(ODD.chars().collect::<Vec<_>>()),
        1 => Just('\n'),
        1 => any::<char>(),
    ]
}

pub(in crate::targets) fn odd_text(most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(odd_char(), 0..=most).prop_map(String::from_iter)
}

fn odd_pattern() -> impl Strategy<Value = String> {
    let class = ("!?", proptest::collection::vec(odd_char(), 0..6))
        .prop_map(|(not, members)| format!("[{not}{}]", String::from_iter(members)));
    prop_oneof![
        2 => odd_text(12),
        3 => proptest::collection::vec(prop_oneof![odd_text(3), class], 0..4)
            .prop_map(|parts| parts.concat()),
    ]
}

/// A pattern, and a name that has a fair chance to match it: a text replaces each piece, and now and then
/// this text is wrong.
pub(in crate::targets) fn pair() -> impl Strategy<Value = (String, String)> {
    let fill = proptest::collection::vec((odd_char(), 0..16_u8), 12);
    (odd_pattern(), odd_text(8), 0..8_u8, fill).prop_map(|(pattern, unrelated, dice, fill)| {
        if dice == 0 {
            return (pattern, unrelated);
        }
        let mut name = String::new();
        for (piece, (c, dice)) in pieces(&pattern).iter().zip(fill.iter().cycle()) {
            match (piece, dice) {
                (Piece::AnyText, dice) => name.extend(std::iter::repeat_n(*c, usize::from(*dice) % 3)),
                (Piece::AnyChar, _) | (Piece::OneOf(_), 0..6) | (_, 6) => name.push(*c),
                (Piece::OneOf(class), _) => name.extend(ODD.chars().find(|c| class.contains(*c))),
                (Piece::Literal(literal), _) => name.push_str(literal),
            }
        }
        (pattern, name)
    })
}
