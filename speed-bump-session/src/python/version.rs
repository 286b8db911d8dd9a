//! CPython's version numbers.

use std::fmt;

/// The release level: the high four bits of the last byte of `PY_VERSION_HEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseLevel {
    /// `0xA`, written `a`.
    Alpha,
    /// `0xB`, written `b`.
    Beta,
    /// `0xC`, written `rc`.
    Candidate,
    /// `0xF`, not written in text.
    Final,
}

/// The part of a version after `3.12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micro {
    /// The third number.
    pub number: u8,
    /// The release level.
    pub level: ReleaseLevel,
    /// The number after `a`, `b` or `rc`.
    pub serial: u8,
}

/// A CPython version, such as 3.12.1 or 3.15.0rc2. Older versions sort first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PythonVersion {
    /// The first number: 3, or 2.
    pub major: u8,
    /// The second number.
    pub minor: u8,
    /// The part after these numbers; absent if only a file's name gave the version.
    pub micro: Option<Micro>,
}

impl PythonVersion {
    /// A version with only two known numbers.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor, micro: None }
    }

    /// Reads `PY_VERSION_HEX` (C API documentation, "API and ABI Versioning"); `None` if it is invalid.
    pub fn from_hex(hex: u32) -> Option<Self> {
        let [major, minor, number, release] = hex.to_be_bytes();
        let level = match release >> 4 {
            0xA => ReleaseLevel::Alpha,
            0xB => ReleaseLevel::Beta,
            0xC => ReleaseLevel::Candidate,
            0xF => ReleaseLevel::Final,
            _ => return None,
        };
        let micro = Micro { number, level, serial: release & 0xf };
        matches!(major, 2 | 3).then_some(Self { major, minor, micro: Some(micro) })
    }

    /// Reads `PY_VERSION`, such as `3.8.18`, `3.9.0rc1` or `3.10.0a7+`.
    pub fn from_text(text: &str) -> Option<Self> {
        let text = text.strip_suffix('+').unwrap_or(text);
        let (major, rest) = text.split_once('.')?;
        let (minor, rest) = rest.split_once('.')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, release) = rest.split_at(digits);
        let (level, serial) =
            [("a", ReleaseLevel::Alpha), ("b", ReleaseLevel::Beta), ("rc", ReleaseLevel::Candidate)]
                .into_iter()
                .find_map(|(mark, level)| Some((level, self::number(release.strip_prefix(mark)?)?)))
                .or_else(|| release.is_empty().then_some((ReleaseLevel::Final, 0)))?;
        let micro = Micro { number: self::number(number)?, level, serial };
        Some(Self { major: self::number(major)?, minor: self::number(minor)?, micro: Some(micro) })
    }

    /// Whether this is `major.minor` or newer.
    pub fn is_at_least(self, major: u8, minor: u8) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

/// Reads a decimal number without a sign and without leading zeros.
pub(super) fn number(text: &str) -> Option<u8> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        let Some(Micro { number, level, serial }) = self.micro else { return Ok(()) };
        write!(f, ".{number}")?;
        match level {
            ReleaseLevel::Alpha => write!(f, "a{serial}"),
            ReleaseLevel::Beta => write!(f, "b{serial}"),
            ReleaseLevel::Candidate => write!(f, "rc{serial}"),
            ReleaseLevel::Final => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_the_same_from_hex_and_text() {
        for (hex, text) in [
            (0x030C_01F0, "3.12.1"),
            (0x030D_00F0, "3.13.0"),
            (0x030F_00C2, "3.15.0rc2"),
            (0x030A_00A7, "3.10.0a7"),
            (0x0309_00B1, "3.9.0b1"),
            (0x0207_12F0, "2.7.18"),
        ] {
            let version = PythonVersion::from_hex(hex);
            assert_eq!(version, PythonVersion::from_text(text), "{text}");
            assert_eq!(version.map(|version| version.to_string()).as_deref(), Some(text));
        }
        assert_eq!(PythonVersion::from_text("3.13.0+"), PythonVersion::from_text("3.13.0"));
        assert_eq!(PythonVersion::new(3, 8).to_string(), "3.8");
    }

    #[test]
    fn other_texts_are_no_versions() {
        for text in
            ["", "3", "3.8", "3.8.", "3..8", "3.8.1.2", "3.8.1x", "3.8.1rc", "+3.8.1", "3.08.1", "3.8.999"]
        {
            assert_eq!(PythonVersion::from_text(text), None, "{text}");
        }
        assert_eq!(PythonVersion::from_hex(0), None);
        assert_eq!(PythonVersion::from_hex(0x0901_01F0), None);
    }

    #[test]
    fn versions_are_ordered_by_age() {
        let parsed = |text| PythonVersion::from_text(text);
        assert!(parsed("3.9.18") < parsed("3.10.0a1"));
        assert!(parsed("3.15.0a1") < parsed("3.15.0b1") && parsed("3.15.0rc2") < parsed("3.15.0"));
        assert!(PythonVersion::new(3, 12).is_at_least(3, 12) && !PythonVersion::new(3, 9).is_at_least(3, 12));
    }
}
