//! The layout of a selector: this crate reads it, the loader writes it.
//!
//! A [`Header`] comes first. After it, without gaps: [`PatternRecord`]s, [`ModuleRecord`]s, [`LineRecord`]s,
//! the line numbers of each module (`u32`s), and the programs of the patterns. All integers are
//! little-endian, and nothing is aligned. There are no addresses in it, so it can lie anywhere.
//!
//! Its lines are the Python lines of the targets file: first the targets, then the exclusions, each in the
//! order of the file. After those, the functions that targets name as callers (`caller=`), each once.
//!
//! A program is a sequence of steps, each an opcode ([`op`]) and its operands.

use crate::Fingerprint;

/// The first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"sbselect");
/// The version of the layout described here.
pub const VERSION: u32 = 2;
/// How many different callers targets can name: each has a bit in a number.
pub const CALLERS: u32 = u32::BITS;
/// Bytes of a [`Header`].
pub const HEADER_BYTES: usize = 56;
/// Bytes of a [`PatternRecord`].
pub const PATTERN_BYTES: usize = 52;
/// Bytes of a [`ModuleRecord`].
pub const MODULE_BYTES: usize = 16;
/// Bytes of a [`LineRecord`].
pub const LINE_BYTES: usize = 20;
/// Bytes of a line number in a module's list.
pub const MEMBER_BYTES: usize = 4;

/// The opcodes of programs.
pub mod op {
    /// `*`. Never twice in a row.
    pub const ANY_TEXT: u8 = 1;
    /// `?`
    pub const ANY_CHAR: u8 = 2;
    /// `[seq]`: a `u32`, the number of ranges; then for each its first and its last character, as `u32`s.
    pub const ONE_OF: u8 = 3;
    /// `[!seq]`, with the same operands.
    pub const NONE_OF: u8 = 4;
    /// Text that stands for itself: a `u32`, its length in bytes; then the text, in UTF-8.
    pub const LITERAL: u8 = 5;
}

/// The head of a selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole selector.
    pub length: u32,
    /// The number of targets in the file, of all kinds.
    pub targets: u32,
    /// The number of [`PatternRecord`]s.
    pub patterns: u32,
    /// The number of [`ModuleRecord`]s.
    pub modules: u32,
    /// The number of [`LineRecord`]s.
    pub lines: u32,
    /// How many of these are targets.
    pub target_lines: u32,
    /// The number of line numbers in the modules' lists.
    pub members: u32,
    /// Bytes of all programs.
    pub programs: u32,
    /// How many of the lines, the last ones, are callers.
    pub caller_lines: u32,
}

/// A pattern. Equal patterns share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatternRecord {
    /// The pairs that every match contains.
    pub needs: Fingerprint,
    /// Where its program starts, from the start of the programs.
    pub start: u32,
    /// Bytes of its program.
    pub length: u32,
    /// The fewest bytes of a match.
    pub least: u32,
    /// Where the steps after its last `*` start, from the start of its program; its length if `*` is last,
    /// and 0 if there is none.
    pub tail: u32,
    /// How many characters those steps match.
    pub tail_chars: u32,
}

/// A module pattern, and its lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleRecord {
    /// Its pattern.
    pub pattern: u32,
    /// 1 if it is also matched with dotted names, else 0.
    pub dotted: u32,
    /// Position of its first line number in the list.
    pub first: u32,
    /// How many line numbers it has.
    pub count: u32,
}

/// A line of the targets file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRecord {
    /// Its [`ModuleRecord`].
    pub module: u32,
    /// Its name pattern.
    pub name: u32,
    /// The part of its name pattern after the last `.`: a pattern too.
    pub last_component: u32,
    /// The loader's number of the target; 0 for an exclusion and for a caller.
    pub target: u32,
    /// For a target, the number of the caller that it is for, from 1 on; 0: it is for all. For a caller, its
    /// own number. For an exclusion 0.
    pub caller: u32,
}

impl Header {
    /// Its bytes in a selector.
    pub fn to_bytes(self, checksum: u64) -> [u8; HEADER_BYTES] {
        let [magic_low, magic_high] = halves(MAGIC);
        let [checksum_low, checksum_high] = halves(checksum);
        from_words([
            magic_low,
            magic_high,
            VERSION,
            self.length,
            self.targets,
            self.patterns,
            self.modules,
            self.lines,
            self.target_lines,
            self.members,
            self.programs,
            self.caller_lines,
            checksum_low,
            checksum_high,
        ])
    }

    /// Its words: those of [`Header::to_bytes`].
    pub(crate) fn words(bytes: &[u8; HEADER_BYTES]) -> [u32; HEADER_BYTES / 4] {
        to_words(bytes)
    }
}

impl PatternRecord {
    /// Its bytes in a selector.
    pub fn to_bytes(self) -> [u8; PATTERN_BYTES] {
        let [a, b, c, d] = self.needs.0.map(halves);
        let (start, length, least) = (self.start, self.length, self.least);
        from_words([
            a[0],
            a[1],
            b[0],
            b[1],
            c[0],
            c[1],
            d[0],
            d[1],
            start,
            length,
            least,
            self.tail,
            self.tail_chars,
        ])
    }

    pub(crate) fn read(bytes: &[u8; PATTERN_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, start, length, least, tail, tail_chars] = to_words(bytes);
        let needs = Fingerprint([whole(a, b), whole(c, d), whole(e, f), whole(g, h)]);
        Self { needs, start, length, least, tail, tail_chars }
    }
}

impl ModuleRecord {
    /// Its bytes in a selector.
    pub fn to_bytes(self) -> [u8; MODULE_BYTES] {
        from_words([self.pattern, self.dotted, self.first, self.count])
    }

    pub(crate) fn read(bytes: &[u8; MODULE_BYTES]) -> Self {
        let [pattern, dotted, first, count] = to_words(bytes);
        Self { pattern, dotted, first, count }
    }
}

impl LineRecord {
    /// Its bytes in a selector.
    pub fn to_bytes(self) -> [u8; LINE_BYTES] {
        from_words([self.module, self.name, self.last_component, self.target, self.caller])
    }

    pub(crate) fn read(bytes: &[u8; LINE_BYTES]) -> Self {
        let [module, name, last_component, target, caller] = to_words(bytes);
        Self { module, name, last_component, target, caller }
    }
}

/// The checksum of a selector: FNV-1a over its header up to the checksum, and over all that follows the
/// header.
///
/// It detects accidents, not malice.
pub fn checksum(selector: &[u8]) -> u64 {
    let head = selector.get(..HEADER_BYTES - 8).unwrap_or_default();
    let body = selector.get(HEADER_BYTES..).unwrap_or_default();
    head.iter()
        .chain(body)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The low and the high half of a number.
fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

pub(crate) fn whole(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn from_words<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == WORDS * 4) };
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}

fn to_words<const WORDS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    const { assert!(BYTES == WORDS * 4) };
    let mut words = [0; WORDS];
    for (word, place) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*place);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_their_layout() {
        let header = Header {
            length: 1,
            targets: 2,
            patterns: 3,
            modules: 4,
            lines: 5,
            target_lines: 6,
            members: 7,
            programs: 8,
            caller_lines: 9,
        };
        let bytes = header.to_bytes(0x0b00_0000_0000_000a);
        assert_eq!(bytes.first_chunk(), Some(b"sbselect"));
        assert_eq!(Header::words(&bytes)[2..], [2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0x0b00_0000]);

        let pattern = PatternRecord {
            needs: Fingerprint([1, 2, 3, 4 << 32]),
            start: 5,
            length: 6,
            least: 7,
            tail: 8,
            tail_chars: 9,
        };
        let bytes = pattern.to_bytes();
        assert_eq!(to_words(&bytes), [1, 0, 2, 0, 3, 0, 0, 4, 5, 6, 7, 8, 9]);
        assert_eq!(PatternRecord::read(&bytes), pattern);

        let module = ModuleRecord { pattern: 1, dotted: 2, first: 3, count: 4 };
        assert_eq!(to_words(&module.to_bytes()), [1, 2, 3, 4]);
        assert_eq!(ModuleRecord::read(&module.to_bytes()), module);

        let line = LineRecord { module: 1, name: 2, last_component: 3, target: 4, caller: 5 };
        assert_eq!(to_words(&line.to_bytes()), [1, 2, 3, 4, 5]);
        assert_eq!(LineRecord::read(&line.to_bytes()), line);
    }
}
