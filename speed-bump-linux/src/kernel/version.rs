//! Kernel versions.

use std::fmt;

/// The first two numbers of a kernel's release. These numbers change when features are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// The first number: 6 in 6.18.
    pub major: u32,
    /// The second number: 18 in 6.18.
    pub minor: u32,
}

impl KernelVersion {
    /// The version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The running kernel's version; 0.0 if its release has no numbers.
    pub fn running() -> Self {
        let uname = rustix::system::uname();
        Self::parse(&uname.release().to_string_lossy()).unwrap_or_default()
    }

    /// Parses a release from uname(2), such as `6.18.44-fc-v657` or `7.0-rc1`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_and_ordered() {
        for (release, version) in [
            ("6.18.44-fc-v657", Some(KernelVersion::new(6, 18))),
            ("6.1.0-18-cloud-amd64", Some(KernelVersion::new(6, 1))),
            ("7.0-rc1", Some(KernelVersion::new(7, 0))),
            ("5.14+", Some(KernelVersion::new(5, 14))),
            ("", None),
            ("6", None),
            ("x.y", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(KernelVersion::parse(release), version, "{release}");
        }
        assert!(KernelVersion::new(6, 2) < KernelVersion::new(6, 12));
    }
}
