//! A cheap proof that a pattern cannot match a text: pairs of bytes that the pattern needs and the text
//! lacks.

/// A set of pairs of adjacent bytes, hashed to 256 bits.
///
/// A text's set has all its pairs, with an edge at both ends. A pattern's set has the pairs that every match
/// contains. So a pattern matches only texts whose set contains the pattern's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u64; 4]);

impl Fingerprint {
    /// Marks the beginning of a text; not a byte of UTF-8.
    pub const START: u8 = 0xff;
    /// Marks its end; not a byte of UTF-8.
    pub const END: u8 = 0xfe;

    /// All pairs of a text.
    pub fn from_text(text: &str) -> Self {
        Self::from_bytes(text.bytes())
    }

    /// All pairs of a text, byte by byte.
    pub(crate) fn from_bytes(bytes: impl Iterator<Item = u8>) -> Self {
        let mut pairs = Self::default();
        let mut before = Self::START;
        for byte in bytes {
            pairs.add(before, byte);
            before = byte;
        }
        pairs.add(before, Self::END);
        pairs
    }

    /// Adds a pair of adjacent bytes.
    pub fn add(&mut self, before: u8, byte: u8) {
        // Multiplication spreads the 16 bits: the highest eight of the product depend on all of them.
        let pair = u32::from(before) << 8 | u32::from(byte);
        let bit = pair.wrapping_mul(0x9e37_79b1) >> 24;
        if let Some(word) = self.0.get_mut(bit as usize / 64) {
            *word |= 1 << (bit % 64);
        }
    }

    /// Whether this set contains all pairs of `needed`.
    pub fn contains(&self, needed: &Self) -> bool {
        let missing = self.0.iter().zip(&needed.0).fold(0, |missing, (have, need)| missing | (need & !have));
        missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_count_as_neighbours() {
        let mut exact = Fingerprint::default();
        exact.add(Fingerprint::START, b'f');
        exact.add(b'f', Fingerprint::END);
        assert_eq!(Fingerprint::from_text("f"), exact);
        assert!(!Fingerprint::from_text("af").contains(&exact));
        assert!(!Fingerprint::from_text("").contains(&exact));
        assert!(Fingerprint::from_text("").contains(&Fingerprint::default()));
    }

    #[test]
    fn every_missing_pair_counts() {
        let none = Fingerprint::default();
        for needed in [[1, 0, 0, 0], [0, 0, 0, 1 << 63], [1, 1, 0, 0], [5, 4, 0, 5]] {
            assert!(!none.contains(&Fingerprint(needed)), "{needed:?}");
            assert!(Fingerprint([7, 7, 7, 5 | 1 << 63]).contains(&Fingerprint(needed)), "{needed:?}");
        }
        assert!(!Fingerprint([3, 3, 3, 3]).contains(&Fingerprint([3, 3, 3, 7])));
    }
}
