//! The version of CPython, from its number or from the text of `Py_GetVersion`.

/// A version of CPython.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// `PY_VERSION_HEX`.
    pub(crate) hex: u32,
    /// Built without the GIL.
    pub(crate) free_threaded: bool,
}

impl Version {
    /// From `Py_Version`.
    pub(crate) fn from_hex(hex: u32) -> Self {
        Self { hex, free_threaded: false }
    }

    /// The same version, with the GIL or without, by the size of what precedes an object's type: from 3.13
    /// on, only builds without the GIL have more there than the reference count.
    pub(crate) fn with_layout(self, object_type: usize) -> Self {
        let free_threaded = self.minor() >= (3, 13) && object_type > size_of::<usize>();
        Self { free_threaded, ..self }
    }

    /// Reads a text such as `3.14.0rc2 free-threading build (main, …) [GCC 13.3.0]`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (major, rest) = number(text)?;
        let (minor, rest) = number(rest.strip_prefix(b".")?)?;
        // A version without a third part is someone's own build; we read it as `.0`.
        let (micro, rest) = rest.strip_prefix(b".").and_then(number).unwrap_or((0, rest));
        // PY_RELEASE_LEVEL (Include/patchlevel.h)
        let (level, rest) = match rest {
            [b'a', rest @ ..] => (0xa, rest),
            [b'b', rest @ ..] => (0xb, rest),
            [b'r', b'c', rest @ ..] => (0xc, rest),
            rest => (0xf, rest),
        };
        let serial = if level == 0xf { 0 } else { number(rest).map_or(0, |(serial, _)| serial) };
        if [major, minor, micro].iter().any(|part| *part > 255) || serial > 15 {
            return None;
        }
        let hex = major << 24 | minor << 16 | micro << 8 | level << 4 | serial;
        Some(Self::from_hex(hex))
    }

    /// Major and minor version.
    pub(crate) fn minor(self) -> (u8, u8) {
        let [major, minor, ..] = self.hex.to_be_bytes();
        (major, minor)
    }
}

fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(length)?;
    if digits.is_empty() || digits.len() > 4 {
        return None;
    }
    Some((digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_interpreters_say() {
        for (text, hex) in [
            ("3.8.18 (default, Nov  1 2025, 10:00:00) \n[GCC 12.2.0]", 0x0308_12f0),
            ("3.10.2 (main, Apr 28 2025, 14:11:48) [GCC 12.2.0]", 0x030a_02f0),
            ("3.10.1+ (heads/3.10:1a2b, Jan  1 2024) [GCC]", 0x030a_01f0),
            ("3.10.0rc2 (main, Aug 2025) [GCC 13.3.0]", 0x030a_00c2),
            ("3.9.0a7 (main) [Clang]", 0x0309_00a7),
        ] {
            assert_eq!(Version::parse(text.as_bytes()), Some(Version::from_hex(hex)), "{text}");
        }
        for text in ["", "3", "3.", "python", "3.999.1", "99999.1"] {
            assert_eq!(Version::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Version::parse(b"3.12.1 (main)").map(Version::minor), Some((3, 12)));
    }

    #[test]
    fn builds_without_the_gil_have_more_before_the_type() {
        for (hex, object_type, free_threaded) in [
            (0x030d_00f0, 24, true),
            (0x030d_00f0, 8, false),
            (0x030f_00a7, 24, true),
            (0x0308_12f0, 24, false),
        ] {
            assert_eq!(
                Version::from_hex(hex).with_layout(object_type).free_threaded,
                free_threaded,
                "{hex:x}"
            );
        }
    }
}
