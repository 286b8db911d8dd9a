//! Numbers with their units, so that no call can mix them up.

use std::{fmt, num::NonZeroI32, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// A span of time, or a point of `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The longest delay that may be requested: 10 s.
    pub const MAX_DELAY: Self = Self(10_000_000_000);
}

impl std::ops::Add for Nanos {
    type Output = Self;

    /// The sum, saturated.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

/// Why a text is not a span of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NanosError {
    /// Not a number with a known unit.
    #[error(
        "`{0}` is not a time: write a number with ns, us, ms or s (`10us`, `1.5ms`), or bare nanoseconds"
    )]
    Malformed(String),
    /// Too many nanoseconds, or a fraction of one.
    #[error("`{0}` is not a whole number of nanoseconds below 2^64")]
    NotWhole(String),
}

impl FromStr for Nanos {
    type Err = NanosError;

    /// Reads `500ns`, `10us`, `1.5ms`, `2s`, or a bare number of nanoseconds.
    fn from_str(text: &str) -> Result<Self, NanosError> {
        let malformed = || NanosError::Malformed(text.to_owned());
        let split = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let scale: u64 = match unit {
            "" | "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(malformed()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty()
            || (number.contains('.') && fraction.is_empty())
            || !fraction.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(malformed());
        }
        // Digits beyond the unit's precision must be zeros: 1.5ns is not a time that we can spin.
        let not_whole = || NanosError::NotWhole(text.to_owned());
        let fraction = fraction.trim_end_matches('0');
        let places = u32::try_from(fraction.len()).map_err(|_| not_whole())?;
        let divisor = 10_u64
            .checked_pow(places)
            .filter(|divisor| scale.is_multiple_of(*divisor))
            .ok_or_else(not_whole)?;
        let fraction: u64 =
            if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| not_whole())? };
        let whole: u64 = whole.parse().map_err(|_| not_whole())?;
        whole
            .checked_mul(scale)
            .and_then(|ns| ns.checked_add(fraction * (scale / divisor)))
            .map(Self)
            .ok_or_else(not_whole)
    }
}

impl fmt::Display for Nanos {
    /// In the largest unit that needs no more than three decimals: `1.5ms`, `350ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit): (u64, _) = match self.0 {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let thousandths = (u128::from(self.0) * 1_000 + u128::from(scale / 2)) / u128::from(scale);
        let (whole, fraction) = (thousandths / 1_000, thousandths % 1_000);
        let text = if fraction == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}.{}{unit}", format!("{fraction:03}").trim_end_matches('0'))
        };
        f.pad(&text)
    }
}

/// An amount of memory, or a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    /// In the largest unit of which there is at least one, with a decimal: `512 bytes`, `64 KiB`, `1.5 MiB`.
    /// Rounded down.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let Some((shift, unit)) = UNITS.into_iter().find(|(shift, _)| self.0 >> shift > 0) else {
            return f.pad(&format!("{} bytes", self.0));
        };
        let (whole, tenth) = (self.0 >> shift, (self.0 >> (shift - 10) & 1023) * 10 / 1024);
        f.pad(&if tenth == 0 { format!("{whole} {unit}") } else { format!("{whole}.{tenth} {unit}") })
    }
}

/// An offset into a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

impl fmt::Display for FileOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address, in an ELF file or in a process, according to the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualAddress(pub u64);

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A process id in our own PID namespace; positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(NonZeroI32);

impl Pid {
    /// The smallest.
    pub const FIRST: Self = Self(match NonZeroI32::new(1) {
        Some(number) => number,
        None => NonZeroI32::MAX,
    });

    /// A process id, if the number can be one.
    pub fn new(number: i32) -> Option<Self> {
        NonZeroI32::new(number).filter(|number| number.get() > 0).map(Self)
    }

    /// Our own process.
    pub fn own() -> Self {
        // The kernel's ids are below 2^22.
        Self(NonZeroI32::new(std::process::id().cast_signed()).unwrap_or(NonZeroI32::MAX))
    }

    /// The number, for system calls and paths.
    pub fn get(self) -> i32 {
        self.0.get()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Pid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse()
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| format!("`{text}` is not a process id: expected a positive number"))
    }
}

impl Serialize for Pid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(self.get())
    }
}

impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i32::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("{number} is not a process id"));
        Self::new(number).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_unit_that_suits() {
        let cases = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (64 << 10, "64 KiB"),
            (1 << 20, "1 MiB"),
            ((3 << 20) / 2, "1.5 MiB"),
            ((2 << 20) - 1, "1.9 MiB"),
            (5 << 30, "5 GiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ];
        for (bytes, shown) in cases {
            assert_eq!(Bytes(bytes).to_string(), shown);
        }
    }

    #[test]
    fn times_are_read() {
        for (text, ns) in [
            ("0", 0),
            ("500", 500),
            ("500ns", 500),
            ("10us", 10_000),
            ("10µs", 10_000),
            ("1.5ms", 1_500_000),
            ("2s", 2_000_000_000),
            ("0.000000001s", 1),
            ("1.500us", 1_500),
            ("1.0ns", 1),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "us",
            "-1",
            "+1",
            "1e3",
            "1 us",
            "1.",
            ".5us",
            "1.2.3s",
            "1.5ns",
            "1.0001us",
            "5m",
            "1h",
            "0x10",
            "18446744073709551616",
            "99999999999s",
            "1us ",
            "٣",
        ] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_written_in_the_largest_unit() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1us"),
            (1_500_000, "1.5ms"),
            (10_000_000_000, "10s"),
            (1_234_567, "1.235ms"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
        assert_eq!(Nanos(u64::MAX).to_string(), "18446744073.71s");
    }

    #[test]
    fn process_ids_are_positive() {
        assert_eq!(Pid::new(0), None);
        assert_eq!(Pid::new(-1), None);
        assert_eq!("17".parse::<Pid>().map(Pid::get), Ok(17));
        assert!("".parse::<Pid>().is_err());
        assert!("4294967296".parse::<Pid>().is_err());
    }
}
