//! The lines of /proc/PID/maps.
//!
//! We read the lines as bytes: a path may hold any bytes, and one odd path must not hide the other lines. The
//! values are what the kernel prints; [`super::mappings`] interprets them.

use std::{borrow::Cow, ffi::OsStr, os::unix::ffi::OsStrExt};

use crate::units::{FileOffset, VirtualAddress};

/// One mapping: one line of the file (proc_pid_maps(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapsLine<'a> {
    pub(super) start: VirtualAddress,
    pub(super) end: VirtualAddress,
    pub(super) executable: bool,
    pub(super) offset: FileOffset,
    /// Major and minor number of the file system.
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
    /// Path or name, unescaped; empty for plain anonymous memory.
    pub(super) name: Cow<'a, OsStr>,
}

/// A line that does not have the format of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine(pub(crate) String);

/// Reads all lines of /proc/PID/maps.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = Result<MapsLine<'_>, BadLine>> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| parse(line).ok_or_else(|| BadLine(String::from_utf8_lossy(line).into_owned())))
}

fn parse(line: &[u8]) -> Option<MapsLine<'_>> {
    // A line is `start-end perms offset major:minor inode`, then blanks and a name. The name itself may
    // contain blanks.
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let (start, end) = pair(fields.next()?, '-', 16)?;
    let permissions = fields.next()?;
    let offset = u64::from_str_radix(str::from_utf8(fields.next()?).ok()?, 16).ok()?;
    let (major, minor) = pair(fields.next()?, ':', 16)?;
    let inode = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let name = fields.next().unwrap_or_default();
    let blanks = name.iter().take_while(|byte| **byte == b' ').count();
    Some(MapsLine {
        start: VirtualAddress(start),
        end: VirtualAddress(end),
        executable: *permissions.get(2)? == b'x',
        offset: FileOffset(offset),
        device: (major.try_into().ok()?, minor.try_into().ok()?),
        inode,
        name: unescape(name.get(blanks..)?),
    })
}

fn pair(field: &[u8], separator: char, radix: u32) -> Option<(u64, u64)> {
    let (left, right) = str::from_utf8(field).ok()?.split_once(separator)?;
    Some((u64::from_str_radix(left, radix).ok()?, u64::from_str_radix(right, radix).ok()?))
}

/// The kernel writes a newline in a name as `\012`, and escapes nothing else. So a name that really contains
/// these four characters gets a wrong result here. We check the inode when we open a file. So we fail to open
/// such a file, but we never open a wrong one.
fn unescape(name: &[u8]) -> Cow<'_, OsStr> {
    const NEWLINE: &[u8] = b"\\012";
    if !name.windows(NEWLINE.len()).any(|window| window == NEWLINE) {
        return Cow::Borrowed(OsStr::from_bytes(name));
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, others @ ..] = rest {
        if let Some(after) = rest.strip_prefix(NEWLINE) {
            bytes.push(b'\n');
            rest = after;
        } else {
            bytes.push(*first);
            rest = others;
        }
    }
    Cow::Owned(OsStr::from_bytes(&bytes).to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn one(line: &[u8]) -> MapsLine<'_> {
        parse(line).unwrap()
    }

    #[test]
    fn fields_are_read() {
        let line = one(
            b"7fc1eed06000-7fc1eee5c000 r-xp 00026000 fe:100 326279                     /usr/lib/libc.so.6",
        );
        assert_eq!(line.start, VirtualAddress(0x7fc1_eed0_6000));
        assert_eq!(line.end, VirtualAddress(0x7fc1_eee5_c000));
        assert!(line.executable);
        assert_eq!(line.offset, FileOffset(0x26000));
        assert_eq!((line.device, line.inode), ((0xfe, 0x100), 326_279));
        assert_eq!(line.name, OsStr::new("/usr/lib/libc.so.6"));
        assert!(!one(b"1000-2000 rw-p 00000000 00:00 0 ").executable);
    }

    #[test]
    fn names_may_be_anything() {
        for (line, name) in [
            (&b"1000-2000 r-xp 00000000 00:00 0 "[..], &b""[..]),
            (b"1000-2000 r-xp 00000000 00:00 0", b""),
            (b"1000-2000 r-xp 00000000 00:00 0                          [vdso]", b"[vdso]"),
            (b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]", b"[vsyscall]"),
            (b"1000-2000 r-xp 00000000 08:01 5    /a b  c ", b"/a b  c "),
            (b"1000-2000 r-xp 00000000 08:01 5    /a\\012\\012b\\040", b"/a\n\nb\\040"),
            (b"1000-2000 r-xp 00000000 08:01 5    /\xff\xfe (deleted)", b"/\xff\xfe (deleted)"),
            (b"1000-2000 r-xp 00000000 00:01 5    /SYSV (deleted)", b"/SYSV (deleted)"),
        ] {
            assert_eq!(one(line).name.as_bytes(), name);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            &b"x"[..],
            b"1000 r-xp 0 00:00 0",
            b"1000-2000 r- 0 00:00 0",
            b"1000-2000 r-xp g 00:00 0",
            b"1000-2000 r-xp 0 0000 0",
            b"1000-2000 r-xp 0 00:00 -1",
            b"10000000000000000-2 r-xp 0 00:00 0",
        ] {
            assert_eq!(parse(line), None, "{}", String::from_utf8_lossy(line));
        }
        assert!(lines(b"\nx\n").next().unwrap().is_err());
    }

    proptest! {
        /// Every text gives lines or errors.
        #[test]
        fn no_text_panics(
            text in "[0-9a-f:rxwp \\\\-]{0,80}",
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            for text in [text.as_bytes(), &bytes] {
                let parsed = lines(text).count();
                let written = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
                prop_assert_eq!(parsed, written);
            }
        }
    }
}
