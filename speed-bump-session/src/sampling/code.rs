//! Finds the functions of code objects.

use std::collections::HashMap;

use super::{
    functions::{Functions, Number, PythonFunction},
    layout::Layout,
    memory::{Source, word},
    profile::LeftOut,
    walk::Torn,
};
use crate::bounds::{Budget, NAME_BYTES, Share};

/// The most code objects of a process that we remember. A program of a million lines has about 50,000
/// functions.
const KNOWN: usize = 1 << 16;
/// The most code objects that we remember over all processes.
pub(super) const KNOWN_OF_ALL: usize = 1 << 18;

/// The fields of a code object that we read each time. As long as they stay the same, the function is also
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    kind: u64,
    file: u64,
    name: u64,
    line: u32,
}

/// The known code objects of a process.
#[derive(Debug)]
pub(super) struct Codes {
    layout: Layout,
    /// The address of the type of code objects, once we have found one.
    kind: Option<u64>,
    known: HashMap<u64, (Head, Number)>,
    room: Budget,
    share: Share,
}

impl Codes {
    /// `room` is the room for the code objects of all processes.
    pub(super) fn new(layout: Layout, room: &Budget) -> Self {
        Self { layout, kind: None, known: HashMap::new(), room: room.clone(), share: room.share(KNOWN) }
    }

    /// The functions of these code objects, by their numbers, in order.
    pub(super) fn functions(
        &mut self,
        source: &mut impl Source,
        codes: &[u64],
        functions: &mut Functions,
    ) -> Result<Vec<Number>, Torn> {
        let length = self.layout.code.size();
        let mut buffer = vec![0; length * codes.len()];
        if source.read_parts(codes, length, &mut buffer) < buffer.len() {
            return Err(Torn);
        }
        let heads = codes.iter().zip(buffer.chunks_exact(length));
        let number = |(code, bytes): (&u64, &[u8])| {
            let head = self.head(bytes)?;
            self.number(source, *code, head, functions)
        };
        heads.map(number).collect::<Option<_>>().ok_or(Torn)
    }

    fn head(&self, bytes: &[u8]) -> Option<Head> {
        let code = &self.layout.code;
        let line = (word(bytes, code.line)? & u64::from(u32::MAX)) as u32;
        Some(Head {
            kind: word(bytes, code.kind)?,
            file: word(bytes, code.file)?,
            name: word(bytes, code.name)?,
            // A code object can contain any first line. We change an impossible one to 0.
            line: u32::try_from(line.cast_signed()).unwrap_or(0),
        })
    }

    fn number(
        &mut self,
        source: &mut impl Source,
        code: u64,
        head: Head,
        functions: &mut Functions,
    ) -> Option<Number> {
        if let Some((known, number)) = self.known.get(&code)
            && *known == head
        {
            return Some(*number);
        }
        match self.kind {
            Some(kind) => (head.kind == kind).then_some(())?,
            None => {
                self.is_code(source, head.kind).then_some(())?;
                self.kind = Some(head.kind);
            }
        }
        let number = match (self.text(source, head.file)?, self.text(source, head.name)?) {
            (Ok(file), Ok(name)) => {
                let function = PythonFunction { file, name, line: head.line };
                functions.number(function, self.layout.code.is_qualified())
            }
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        self.know(code, head, number);
        Some(number)
    }

    /// Remembers a code object. If there is no room, forgets all code objects and starts again.
    fn know(&mut self, code: u64, head: Head, number: Number) {
        if !self.known.contains_key(&code) && !self.share.take(1) {
            self.known = HashMap::new();
            self.share = self.room.share(KNOWN);
            if !self.share.take(1) {
                return;
            }
        }
        self.known.insert(code, (head, number));
    }

    /// Whether this is the type of code objects, judging by its name.
    fn is_code(&self, source: &mut impl Source, kind: u64) -> bool {
        const NAME: &[u8; 5] = b"code\0";
        let mut read = |address: u64| {
            let mut bytes = [0; 8];
            (source.read(address, &mut bytes) == 8).then(|| u64::from_ne_bytes(bytes))
        };
        let name = kind.checked_add(self.layout.code.kind_name).and_then(&mut read);
        let Some(name) = name else { return false };
        let mut bytes = [0; NAME.len()];
        source.read(name, &mut bytes) == bytes.len() && bytes == *NAME
    }

    /// The text of a `str`, or the reason for leaving its function out; `None` if the object is not a `str`.
    fn text(&self, source: &mut impl Source, address: u64) -> Option<Result<String, LeftOut>> {
        let layout = &self.layout.text;
        let mut head = vec![0; (layout.length.max(layout.state) + 8) as usize];
        (source.read(address, &mut head) == head.len()).then_some(())?;
        let (bytes_each, is_ascii) = form(word(&head, layout.state)?)?;
        let length = match usize::try_from(word(&head, layout.length)?).ok()? {
            0 => return Some(Err(LeftOut::NoName)),
            length if length > NAME_BYTES => return Some(Err(LeftOut::TooLong)),
            length => length,
        };
        let start = if is_ascii { layout.ascii } else { layout.other };
        let mut bytes = vec![0; length * bytes_each];
        (source.read(address.checked_add(start)?, &mut bytes) == bytes.len()).then_some(())?;
        let character = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0_u32, |number, byte| (number << 8) | u32::from(*byte));
            // File names that are not UTF-8 contain surrogates.
            (!is_ascii || number < 128).then(|| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
        };
        let mut text = String::with_capacity(length);
        for bytes in bytes.chunks_exact(bytes_each) {
            text.push(character(bytes)?);
            if text.len() > NAME_BYTES {
                return Some(Err(LeftOut::TooLong));
            }
        }
        text.shrink_to_fit();
        Some(Ok(text))
    }
}

/// The number of bytes per character, and whether all characters are ASCII. Both are in the `state` of a
/// `str` (Include/cpython/unicodeobject.h). `state` begins with the interned state, in 2 bits, or in 8 bits
/// in free-threaded builds since 3.14. Then come the number of bytes per character (3 bits), whether the
/// characters follow directly (1 bit), and whether all are ASCII (1 bit).
fn form(state: u64) -> Option<(usize, bool)> {
    [2, 8].into_iter().find_map(|shift| {
        let bits = state >> shift;
        let bytes = usize::try_from(bits & 7).ok()?;
        let (follows, is_ascii) = (bits & 8 != 0, bits & 16 != 0);
        (matches!(bytes, 1 | 2 | 4) && follows && (bytes == 1 || !is_ascii)).then_some((bytes, is_ascii))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn forms_of_texts_are_told() {
        let state = |bytes: u64, follows: u64, ascii: u64| bytes | follows << 3 | ascii << 4;
        for (shift, interned) in [(2, 0), (2, 3), (8, 0), (8, 3)] {
            let form = |bytes, follows, ascii| form(state(bytes, follows, ascii) << shift | interned);
            assert_eq!(form(1, 1, 1), Some((1, true)));
            assert_eq!(form(1, 1, 0), Some((1, false)));
            assert_eq!(form(2, 1, 0), Some((2, false)));
            assert_eq!(form(4, 1, 0), Some((4, false)));
            assert_eq!(form(1, 0, 1), None, "its characters are elsewhere");
            assert_eq!(form(2, 1, 1), None, "no ASCII has two bytes");
        }
        assert_eq!(form(0), None);
    }
}
