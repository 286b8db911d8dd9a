//! The clock that BPF programs and helpers read too.

use rustix::time::{ClockId, clock_gettime};

use crate::units::Nanos;

/// Now (`CLOCK_MONOTONIC`).
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
