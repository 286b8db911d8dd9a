//! Why the helper gives up, in words for the user.

use speed_bump_abi::control_block::{FAILURE_TEXT_BYTES, Failure};

use crate::sys::Errno;

/// A failure and its details.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    pub(crate) text: Text,
}

impl Fault {
    /// A failure with a text.
    pub(crate) fn new(failure: Failure, parts: &[&str]) -> Self {
        Self { failure, text: Text::from_parts(parts) }
    }
}

/// The failure to report if memory could not be mapped.
pub(crate) fn not_mapped(error: Errno) -> Failure {
    // ENOMEM, and EAGAIN where memory is locked (mmap(2)).
    if matches!(error, Errno(11 | 12)) { Failure::NoMemory } else { Failure::NotMapped }
}

/// A text that needs no allocation, cut between characters if it is too long.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    bytes: [u8; FAILURE_TEXT_BYTES],
    length: usize,
}

impl Text {
    /// The parts, one after the other.
    pub(crate) fn from_parts(parts: &[&str]) -> Self {
        let mut text = Self { bytes: [0; FAILURE_TEXT_BYTES], length: 0 };
        for part in parts {
            text.push(part);
        }
        text
    }

    /// Adds a part.
    pub(crate) fn push(&mut self, part: &str) {
        for character in part.chars() {
            let mut buffer = [0; 4];
            let encoded = character.encode_utf8(&mut buffer).as_bytes();
            let Some(room) = self.bytes.get_mut(self.length..self.length + encoded.len()) else { return };
            room.copy_from_slice(encoded);
            self.length += encoded.len();
        }
    }

    /// The bytes, padded with NUL.
    pub(crate) fn padded(&self) -> &[u8; FAILURE_TEXT_BYTES] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = "ä".repeat(FAILURE_TEXT_BYTES);
        let text = Text::from_parts(&["x", &long]);
        let bytes = text.padded();
        assert_eq!(bytes.last(), Some(&0));
        assert_eq!(core::str::from_utf8(&bytes[..bytes.len() - 1]).map(str::len), Ok(FAILURE_TEXT_BYTES - 1));
    }

    #[test]
    fn a_short_text_is_padded() {
        let text = Text::from_parts(&["no ", "id"]);
        assert_eq!(text.padded()[..6], *b"no id\0");
    }
}
