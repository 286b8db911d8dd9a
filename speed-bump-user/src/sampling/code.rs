//! Code objects: which function is it?

use std::collections::HashMap;

use super::{
    layout::Layout,
    memory::{Source, word},
    walk::Torn,
};
use crate::bounds::NAME_BYTES;

/// Code objects that are known at once. A program of a million lines has some 50,000 functions.
const KNOWN: usize = 1 << 16;
/// Functions of a process that are told apart.
const FUNCTIONS: usize = 1 << 15;
/// The highest line number that is believed.
const LINES: u64 = 1 << 30;

/// A Python function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PythonFunction {
    /// `co_filename`
    pub(super) file: String,
    /// `co_qualname`; `co_name` before 3.11.
    pub(super) name: String,
    /// `co_firstlineno`
    pub(super) line: u32,
}

/// What is read of a code object each time: while that stays the same, so does the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    kind: u64,
    file: u64,
    name: u64,
    line: u32,
}

/// The code objects of a process.
#[derive(Debug)]
pub(super) struct Codes {
    layout: Layout,
    /// The type of code objects, once one has been seen.
    kind: Option<u64>,
    known: HashMap<u64, (Head, u32)>,
    numbers: HashMap<PythonFunction, u32>,
    functions: Vec<PythonFunction>,
    buffer: Vec<u8>,
}

impl Codes {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            kind: None,
            known: HashMap::new(),
            numbers: HashMap::new(),
            functions: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// All functions that were seen, by number.
    pub(super) fn all(&self) -> &[PythonFunction] {
        &self.functions
    }

    /// The numbers of the functions of these code objects, in their order.
    pub(super) fn functions(&mut self, source: &mut impl Source, codes: &[u64]) -> Result<Vec<u32>, Torn> {
        let length = self.layout.code.size();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length * codes.len(), 0);
        let read = source.read_parts(codes, length, &mut buffer);
        let numbers = if read == buffer.len() {
            let heads = buffer.chunks_exact(length).map(|bytes| self.head(bytes));
            let heads: Vec<Option<Head>> = heads.collect();
            let both = codes.iter().zip(heads);
            both.map(|(code, head)| self.number(source, *code, head?)).collect::<Option<Vec<u32>>>()
        } else {
            None
        };
        self.buffer = buffer;
        numbers.ok_or(Torn)
    }

    fn head(&self, bytes: &[u8]) -> Option<Head> {
        let code = &self.layout.code;
        let line = word(bytes, code.line)? & u64::from(u32::MAX);
        Some(Head {
            kind: word(bytes, code.kind)?,
            file: word(bytes, code.file)?,
            name: word(bytes, code.name)?,
            line: u32::try_from(line).ok().filter(|line| u64::from(*line) < LINES)?,
        })
    }

    fn number(&mut self, source: &mut impl Source, code: u64, head: Head) -> Option<u32> {
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
        let file = self.text(source, head.file)?;
        let name = self.text(source, head.name)?;
        (!name.is_empty()).then_some(())?;
        let function = PythonFunction { file, name, line: head.line };
        let number = match self.numbers.get(&function) {
            Some(number) => *number,
            None => {
                (self.functions.len() < FUNCTIONS).then_some(())?;
                let number = u32::try_from(self.functions.len()).ok()?;
                self.functions.push(function.clone());
                self.numbers.insert(function, number);
                number
            }
        };
        if self.known.len() == KNOWN {
            self.known.clear();
        }
        self.known.insert(code, (head, number));
        Some(number)
    }

    /// Whether this is the type of code objects, by the name that it has.
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

    /// The text of a `str`.
    fn text(&self, source: &mut impl Source, address: u64) -> Option<String> {
        let layout = &self.layout.text;
        let mut head = vec![0; (layout.length.max(layout.state) + 8) as usize];
        (source.read(address, &mut head) == head.len()).then_some(())?;
        let length =
            usize::try_from(word(&head, layout.length)?).ok().filter(|length| *length <= NAME_BYTES)?;
        let (bytes_each, is_ascii) = form(word(&head, layout.state)?)?;
        let start = if is_ascii { layout.ascii } else { layout.other };
        let mut bytes = vec![0; length * bytes_each];
        (source.read(address.checked_add(start)?, &mut bytes) == bytes.len()).then_some(())?;
        let character = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0_u32, |number, byte| (number << 8) | u32::from(*byte));
            // A file name that is no UTF-8 has surrogates.
            (!is_ascii || number < 128).then(|| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
        };
        bytes.chunks_exact(bytes_each).map(character).collect()
    }
}

/// Bytes of a character, and whether all are ASCII, by the `state` of a `str`
/// (Include/cpython/unicodeobject.h): after what says whether it is interned, which takes 2 bits, or 8 in
/// free-threaded builds since 3.14, come 3 bits for the bytes of a character, one for whether characters
/// follow at once, and one for ASCII.
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
