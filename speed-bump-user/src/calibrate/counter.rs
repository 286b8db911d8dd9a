//! The processor's counter, by which the helper in a process says how long it took: how fast it counts.

use std::{
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::SiteArguments;

use crate::units::Nanos;

/// What has to pass between two readings. Each is within some 50 ns, one part in 80,000 of this.
const LEAST_SPAN: Duration = Duration::from_millis(4);

/// A reading of the counter and of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    ticks: u64,
    at: Instant,
}

impl Reading {
    pub(crate) fn now() -> Self {
        Self { ticks: ticks(), at: Instant::now() }
    }

    /// How many ns pass in [`SiteArguments::TICKS`] of it, by what passed since; 0 where that cannot be.
    /// Waits until enough has passed.
    pub(crate) fn tick_ns(self) -> u32 {
        thread::sleep(LEAST_SPAN.saturating_sub(self.at.elapsed()));
        let ns = Nanos::from(self.at.elapsed()).0;
        let ticks = ticks().wrapping_sub(self.ticks);
        let rate =
            u128::from(ns).saturating_mul(u128::from(SiteArguments::TICKS)).checked_div(u128::from(ticks));
        rate.and_then(|rate| u32::try_from(rate).ok()).unwrap_or(0)
    }
}

/// What the counter shows.
#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a counter, which nothing forbids our own process.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// What the counter shows.
#[cfg(target_arch = "aarch64")]
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a register, which Linux lets processes read.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_counter_that_stood_still_says_nothing() {
        let reading = Reading { ticks: ticks().wrapping_add(u64::MAX / 2), at: Instant::now() };
        assert_eq!(reading.tick_ns(), 0);
    }
}
