//! The lines of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
//!
//! We read the lines as bytes, because a path may hold any bytes. Where users may have namespaces of their
//! own, a user can choose what is mounted, and the type of the file system.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The number of the mount. No other mount has this number while the mount exists.
    pub(super) id: u64,
    /// Major and minor number of the file system.
    pub(super) device: (u32, u32),
    /// Which directory of the file system is mounted.
    pub(super) root: PathBuf,
    /// The directory where the file system is mounted.
    pub(super) point: PathBuf,
    /// The type of the file system.
    pub(super) kind: Vec<u8>,
    /// The options of the file system as the kernel prints them: separated by commas, with escapes.
    pub(super) options: Vec<u8>,
}

/// Reads the mounts, and skips lines in another format.
pub(super) fn mounts(text: &[u8]) -> impl Iterator<Item = Mount> {
    text.split(|byte| *byte == b'\n').filter_map(mount)
}

fn mount(line: &[u8]) -> Option<Mount> {
    // A line is `id parent major:minor root point options [optional]... - kind source superoptions`.
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let device = fields.nth(1)?;
    let colon = device.iter().position(|byte| *byte == b':')?;
    let device =
        (number(device.get(..colon)?)?.try_into().ok()?, number(device.get(colon + 1..)?)?.try_into().ok()?);
    let (root, point) = (path(fields.next()?), path(fields.next()?));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, _source, options) = (fields.next()?.to_owned(), fields.next()?, fields.next()?.to_owned());
    Some(Mount { id, device, root, point, kind, options })
}

fn number(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}

fn path(text: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(text)))
}

impl Mount {
    /// Turns a path below the mount point into the path in the file system.
    pub(super) fn place_of(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.point).ok()?;
        Some(self.root.join(below))
    }
}

/// Decodes the kernel's `\ooo`: blanks, commas and backslashes as octal numbers.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, others @ ..] = rest {
        let digits =
            others.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(&[high, middle, low]) if *first == b'\\' && high <= b'3' => {
                bytes.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                rest = others.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_read() {
        let text = b"67 63 0:40 /sub\\040dir /srv/a\\040b rw,relatime shared:1 master:2 - overlay overlay \
                     rw,lowerdir=/l\n\
                     bad line\n\
                     1 2 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let found: Vec<Mount> = mounts(text).collect();
        assert_eq!(found.len(), 2);
        let mount = &found[0];
        assert_eq!((mount.id, mount.device), (67, (0, 40)));
        assert_eq!(
            (mount.root.as_path(), mount.point.as_path()),
            (Path::new("/sub dir"), Path::new("/srv/a b"))
        );
        assert_eq!(
            (mount.kind.as_slice(), mount.options.as_slice()),
            (&b"overlay"[..], &b"rw,lowerdir=/l"[..])
        );
        assert_eq!(mount.place_of(Path::new("/srv/a b/bin/x")), Some("/sub dir/bin/x".into()));
        assert_eq!(mount.place_of(Path::new("/srv/a bc")), None);
        assert_eq!(found[1].place_of(Path::new("/bin/x")), Some("/bin/x".into()));
    }

    #[test]
    fn escapes_are_octal_and_nothing_else() {
        for (shown, meant) in [
            (&br"/a\134:b\0542"[..], &br"/a\:b,2"[..]),
            (br"\040\011\012\134", b" \t\n\\"),
            (br"\04", br"\04"),
            (br"\948\x20\", br"\948\x20\"),
            (br"\777", br"\777"),
        ] {
            assert_eq!(unescape(shown), meant);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(
            text in prop::collection::vec(any::<u8>(), 0..200),
            fields in "[0-9:/ \\\\-]{0,120}",
        ) {
            for text in [text.as_slice(), fields.as_bytes()] {
                prop_assert!(mounts(text).count() <= 200);
            }
        }
    }
}
