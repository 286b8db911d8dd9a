//! The lines of a perf map: `HEX_ADDRESS HEX_SIZE py::QUALNAME:FILENAME`.
//!
//! Lines of other compilers in the process (Node's, .NET's) have no `py::`, and we skip them.

use crate::units::VirtualAddress;

/// The longest incomplete line that we keep: long enough for a path of PATH_MAX and a qualified name of the
/// same length.
const LINE_LIMIT: usize = 16 << 10;

/// A perf trampoline and its function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PerfMapEntry {
    /// The address of the trampoline's first byte in the process.
    pub address: VirtualAddress,
    /// The length of the code in bytes, without padding.
    pub size: u64,
    /// `co_qualname`.
    pub qualname: String,
    /// `co_filename`. If it is not valid UTF-8, CPython writes `(null)` or nothing.
    pub filename: String,
}

/// Assembles lines from the bytes read so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    /// The start of a line whose end the process has not written yet.
    partial: Vec<u8>,
    /// Whether the current line is too long. Then we skip everything up to its end.
    skipping: bool,
}

impl Lines {
    /// Adds the entries that these next bytes of the file complete.
    pub(super) fn push(&mut self, mut bytes: &[u8], entries: &mut Vec<PerfMapEntry>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            let skipped = std::mem::take(&mut self.skipping);
            if self.partial.is_empty() {
                entries.extend(parse(line).filter(|_| !skipped));
            } else {
                self.partial.extend_from_slice(line);
                entries.extend(parse(&self.partial));
                self.partial.clear();
            }
        }
        if self.partial.len() + bytes.len() > LINE_LIMIT {
            self.partial.clear();
            self.skipping = true;
        } else if !self.skipping {
            self.partial.extend_from_slice(bytes);
        }
    }
}

/// Parses a line without its end; `None` if the line is not CPython's.
fn parse(line: &[u8]) -> Option<PerfMapEntry> {
    if line.len() > LINE_LIMIT {
        return None;
    }
    let text = String::from_utf8_lossy(line);
    let (address, rest) = text.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    // Identifiers contain no colon, nor do `<locals>` and `<generic parameters of f>`. File names may contain
    // colons.
    let (qualname, filename) = name.strip_prefix("py::")?.split_once(':')?;
    let size = hexadecimal(size)?;
    if size == 0 || qualname.is_empty() {
        return None;
    }
    let address = VirtualAddress(hexadecimal(address)?);
    Some(PerfMapEntry { address, size, qualname: qualname.to_owned(), filename: filename.to_owned() })
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<PerfMapEntry> {
        let (mut lines, mut entries) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, &mut entries);
        }
        entries
    }

    fn names(text: &str) -> Option<(u64, u64, String, String)> {
        let mut entries = lines(&[text.as_bytes(), b"\n"]);
        entries.pop().map(|entry| (entry.address.0, entry.size, entry.qualname, entry.filename))
    }

    #[test]
    fn a_line_names_address_size_function_and_file() {
        for (line, qualname, filename) in [
            ("7f8e322bd814 b py::K.m:/tmp/a.py", "K.m", "/tmp/a.py"),
            ("7f8e322bd814 b py::<module>:<frozen runpy>", "<module>", "<frozen runpy>"),
            ("7f8e322bd814 b py::o.<locals>.<lambda>:/a b/c:d.py", "o.<locals>.<lambda>", "/a b/c:d.py"),
            ("0x7f8e322bd814 0xb py::weird:<string: a:b c>", "weird", "<string: a:b c>"),
            ("7f8e322bd814 b py::<generic parameters of f>:/a.py", "<generic parameters of f>", "/a.py"),
            ("7f8e322bd814 b py::ü:/ü.py", "ü", "/ü.py"),
            ("7f8e322bd814 b py::f:", "f", ""),
        ] {
            let expected = (0x7f8e_322b_d814, 0xb, qualname.to_owned(), filename.to_owned());
            assert_eq!(names(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn other_lines_are_skipped() {
        for line in [
            "",
            "7f00",
            "7f00 b",
            "7f00 b LazyCompile:~f /a.js",
            "7f00 b py::f",
            "7f00 b py:::/a.py",
            "7f00 0 py::f:/a.py",
            "7f00  b py::f:/a.py",
            " 7f00 b py::f:/a.py",
            "-7f00 b py::f:/a.py",
            "+7f00 b py::f:/a.py",
            "17f8e322bd8140000 b py::f:/a.py",
            "y.py",
        ] {
            assert_eq!(names(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_counts_once_it_is_complete() {
        assert_eq!(lines(&[b"7f00 b py::f:/a.p"]), []);
        let whole = lines(&[b"7f00 b py::f:/a.py\n7f10 b py::g:/a.py\n"]);
        assert_eq!(whole.len(), 2);
        assert_eq!(lines(&[b"7f00 b py::", b"f:/a.p", b"y\n7f10 b py::g:/a.py", b"\n"]), whole);
    }

    #[test]
    fn an_endless_line_is_forgotten_up_to_its_end() {
        let long = vec![b'x'; LINE_LIMIT];
        let entries = lines(&[b"7f00 b py::f:/", &long, &long, b"\n7f10 b py::g:/a.py\n"]);
        assert_eq!(entries.iter().map(|entry| entry.qualname.as_str()).collect::<Vec<_>>(), ["g"]);
        let in_one = [b"7f00 b py::f:/".as_slice(), &long, b"\n"].concat();
        assert_eq!(lines(&[&in_one]), []);
    }

    #[test]
    fn the_longest_line_is_read_however_it_comes() {
        for (length, count) in [(LINE_LIMIT, 1), (LINE_LIMIT + 1, 0)] {
            let mut line = b"7f00 b py::f:/".to_vec();
            line.resize(length, b'x');
            let (half, rest) = line.split_at(length / 2);
            assert_eq!(lines(&[&line, b"\n"]).len(), count, "{length}");
            assert_eq!(lines(&[&[&line, b"\n".as_slice()].concat()]).len(), count, "{length}");
            assert_eq!(lines(&[half, rest, b"\n"]).len(), count, "{length}");
        }
    }

    #[test]
    fn no_more_than_a_line_is_kept() {
        let (mut lines, mut entries) = (Lines::default(), Vec::new());
        for piece in
            [LINE_LIMIT - 3, 1, 1, 1, 1, 7, LINE_LIMIT, LINE_LIMIT, 5].map(|length| vec![b'x'; length])
        {
            lines.push(&piece, &mut entries);
            assert!(lines.partial.len() <= LINE_LIMIT, "{}", lines.partial.len());
        }
        lines.push(b"\n7f10 b py::g:/a.py\n", &mut entries);
        assert_eq!(entries.len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same(
            text in prop::collection::vec(
                prop_oneof![
                    any::<u8>().prop_map(|byte| vec![byte]),
                    Just(b"7f8e322bd814 b py::f.<locals>.g:/a b.py\n".to_vec()),
                    Just(b"7f8e b py::".to_vec()),
                    Just(b"\n".to_vec()),
                ],
                0..40,
            ).prop_map(|pieces| pieces.concat()),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut start = 0;
            for cut in cuts {
                pieces.push(&text[start..cut]);
                start = cut;
            }
            pieces.push(&text[start..]);
            prop_assert_eq!(lines(&pieces), lines(&[&text]));
        }
    }
}
