//! Clocks of the kernel.

pub use rustix::time::ClockId;
use rustix::time::clock_gettime;

use crate::units::Nanos;

/// The time now (`CLOCK_MONOTONIC`). BPF programs and helpers read the same clock.
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// Reads a clock.
pub fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
