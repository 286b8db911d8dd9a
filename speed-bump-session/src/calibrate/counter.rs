//! Measures the rate of the processor's counter. The helper measures time with this counter.

use std::{iter, thread, time::Duration};

use speed_bump_abi::SiteArguments;

use crate::{sys::clock, units::Nanos};

/// The least time between two readings.
const MIN_SPAN: Nanos = Nanos(4_000_000);
/// The least time, as a multiple of a reading's uncertainty. So the rate is accurate to one part in this
/// number.
const MIN_SPAN_IN_DOUBTS: u64 = 10_000;
/// On a machine that is too busy for the least time, this time between two readings is enough.
const LONGEST_SPAN: Nanos = Nanos(100_000_000);
/// How often we read counter and clock at most, to get an undisturbed reading.
const TRIES: usize = 32;
/// The most time between two readings of the clock if nothing disturbed us.
const UNDISTURBED: Nanos = Nanos(150);

/// A reading of the counter and the clock at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    ticks: u64,
    /// The time on `CLOCK_MONOTONIC`.
    at: Nanos,
    /// The uncertainty: the most time between reading the counter and the clock.
    doubt: Nanos,
}

impl Reading {
    /// The least disturbed of several readings. If a thread loses its processor between reading the counter
    /// and the clock, it has read two different moments.
    pub(crate) fn now() -> Self {
        let mut readings = iter::repeat_with(Self::once).take(TRIES);
        least_disturbed(&mut readings).unwrap_or_else(Self::once)
    }

    fn once() -> Self {
        let before = clock::now();
        let ticks = ticks();
        let doubt = Nanos(clock::now().0.saturating_sub(before.0));
        Self { ticks, at: Nanos(before.0.saturating_add(doubt.0 / 2)), doubt }
    }

    /// The value of the counter.
    pub(crate) fn ticks(self) -> u64 {
        self.ticks
    }

    /// The time of the reading, on `CLOCK_MONOTONIC`.
    pub(crate) fn at(self) -> Nanos {
        self.at
    }

    /// How many ns [`SiteArguments::TICKS`] ticks of the counter take, from the ticks since this reading; 0
    /// if we cannot use the counter. Waits until enough time has passed.
    pub(crate) fn tick_ns(self) -> u32 {
        loop {
            let later = Self::now();
            let enough = self.enough(later);
            let span = later.at.0.saturating_sub(self.at.0);
            if span >= enough.0 {
                return self.rate(later);
            }
            thread::sleep(Duration::from_nanos(enough.0 - span));
        }
    }

    /// The time that must lie between this reading and a later one.
    fn enough(self, later: Self) -> Nanos {
        let doubt = self.doubt.0.saturating_add(later.doubt.0) / 2;
        Nanos(doubt.saturating_mul(MIN_SPAN_IN_DOUBTS)).clamp(MIN_SPAN, LONGEST_SPAN)
    }

    fn rate(self, later: Self) -> u32 {
        let ns = later.at.0.saturating_sub(self.at.0);
        let ticks = later.ticks.wrapping_sub(self.ticks);
        let rate =
            u128::from(ns).saturating_mul(u128::from(SiteArguments::TICKS)).checked_div(u128::from(ticks));
        rate.and_then(|rate| u32::try_from(rate).ok()).unwrap_or(0)
    }
}

/// The first undisturbed reading. If there is none, the least disturbed one.
fn least_disturbed(readings: &mut impl Iterator<Item = Reading>) -> Option<Reading> {
    let mut best: Option<Reading> = None;
    for reading in readings {
        if best.is_none_or(|best| reading.doubt < best.doubt) {
            best = Some(reading);
        }
        if reading.doubt <= UNDISTURBED {
            break;
        }
    }
    best
}

/// Reads the counter.
#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: only reads a counter, which our own process may do.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Reads the counter.
#[cfg(target_arch = "aarch64")]
fn ticks() -> u64 {
    let ticks;
    // SAFETY: only reads a register, which Linux lets processes read.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONE_MS: Reading = Reading { ticks: 5_000, at: Nanos(1_000_000), doubt: Nanos(100) };

    /// A later reading of a counter with two ticks per ns.
    fn later(by: u64, doubt: u64) -> Reading {
        let Reading { ticks, at, .. } = AT_ONE_MS;
        Reading { ticks: ticks + 2 * by, at: Nanos(at.0 + by), doubt: Nanos(doubt) }
    }

    #[test]
    fn the_counter_counts_on() {
        let reading = Reading::now();
        let before = ticks();
        thread::sleep(Duration::from_millis(2));
        assert!(ticks() > before);
        // Counters run at 1 MHz (aarch64 boards) to 10 GHz.
        assert!((100_000..=1_100_000_000).contains(&reading.tick_ns()), "{}", reading.tick_ns());
    }

    #[test]
    fn the_rate_is_what_passed_by_what_was_counted() {
        assert_eq!(u64::from(AT_ONE_MS.rate(later(4_000_000, 100))), SiteArguments::TICKS / 2);
    }

    #[test]
    fn the_less_sure_a_reading_is_the_longer_is_waited() {
        assert_eq!(AT_ONE_MS.enough(later(0, 100)), MIN_SPAN);
        assert_eq!(AT_ONE_MS.enough(later(0, 2_900)), Nanos(15_000_000));
        assert_eq!(AT_ONE_MS.enough(later(0, u64::MAX)), LONGEST_SPAN);
    }

    #[test]
    fn of_readings_of_a_moment_the_least_disturbed_is_taken() {
        let of = |doubts: &[u64]| {
            let mut readings = doubts.iter().map(|doubt| later(0, *doubt));
            (least_disturbed(&mut readings).map(|reading| reading.doubt.0), readings.count())
        };
        assert_eq!(of(&[3_000_000, 160, 7_000]), (Some(160), 0));
        assert_eq!(of(&[3_000_000, 150, 20]), (Some(150), 1), "good enough");
        assert_eq!(of(&[20_000, 3_000_000]), (Some(20_000), 0));
        assert_eq!(of(&[]), (None, 0));
    }

    #[test]
    fn a_counter_that_stood_still_says_nothing() {
        assert_eq!(AT_ONE_MS.rate(Reading { ticks: AT_ONE_MS.ticks, ..later(4_000_000, 100) }), 0);
        assert_eq!(AT_ONE_MS.rate(Reading { ticks: 0, ..later(4_000_000, 100) }), 0, "it went backwards");
    }
}
