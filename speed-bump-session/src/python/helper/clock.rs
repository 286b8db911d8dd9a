//! The helper's clock: the processor's counter if we can trust it, otherwise the kernel's clock.

use std::{fs, path::Path};

use speed_bump_abi::{
    SiteArguments,
    control_block::{Clock, UNIT_PER_NS},
};

use crate::{calibrate::counter::Reading, units::Nanos};

/// The clock of a helper, and its rate. We convert times to `CLOCK_MONOTONIC` of our own process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperClock {
    kind: Clock,
    /// See [`ControlBlock::units_per_ns`](speed_bump_abi::control_block::ControlBlock::units_per_ns).
    units_per_ns: u64,
    /// How far the process's clock is ahead of ours, in ns.
    ahead_ns: i64,
}

impl HelperClock {
    /// `CLOCK_MONOTONIC`, which counts in units of 1 ns.
    pub const MONOTONIC: Self = Self { kind: Clock::Monotonic, units_per_ns: UNIT_PER_NS, ahead_ns: 0 };

    /// The counter, if the kernel's own clock uses it and we know its rate: [`SiteArguments::TICKS`] ticks of
    /// the counter take `tick_ns`. Otherwise `CLOCK_MONOTONIC`.
    pub fn of_machine(tick_ns: u32) -> Self {
        if tick_ns == 0 || !counter_is_trusted() {
            return Self::MONOTONIC;
        }
        let units = (u128::from(SiteArguments::TICKS) * u128::from(UNIT_PER_NS)) / u128::from(tick_ns);
        match u64::try_from(units) {
            Ok(units_per_ns) => Self { kind: Clock::Counter, units_per_ns, ahead_ns: 0 },
            Err(_) => Self::MONOTONIC,
        }
    }

    /// This clock in a process that may be in another time namespace. `theirs` and `ours` are the contents of
    /// `timens_offsets`.
    pub fn in_namespace(self, theirs: &str, ours: &str) -> Self {
        match self.kind {
            Clock::Monotonic => Self { ahead_ns: offset(theirs).saturating_sub(offset(ours)), ..self },
            Clock::Counter => self,
        }
    }

    /// Which clock the helper reads.
    pub fn kind(self) -> Clock {
        self.kind
    }

    /// Clock units in a ns, as a multiple of [`UNIT_PER_NS`].
    pub fn units_per_ns(self) -> u64 {
        self.units_per_ns
    }

    /// The clock's value at a time. The greatest time gives the greatest value.
    pub fn at(self, time: Nanos) -> u64 {
        if time == Nanos(u64::MAX) {
            return u64::MAX;
        }
        match self.kind {
            Clock::Monotonic => time.0.saturating_add_signed(self.ahead_ns),
            Clock::Counter => {
                let reading = Reading::now();
                let (count, now) = (reading.ticks(), reading.at());
                if time >= now {
                    count.saturating_add(self.units(Nanos(time.0 - now.0)))
                } else {
                    count.saturating_sub(self.units(Nanos(now.0 - time.0)))
                }
            }
        }
    }

    /// Converts a duration to clock units.
    pub fn units(self, time: Nanos) -> u64 {
        let units = u128::from(time.0) * u128::from(self.units_per_ns) / u128::from(UNIT_PER_NS);
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Converts clock units to a duration.
    pub fn time(self, units: u64) -> Nanos {
        let ns = u128::from(units) * u128::from(UNIT_PER_NS) / u128::from(self.units_per_ns.max(1));
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// The shift of the monotonic clock in a namespace, in ns; 0 if the text gives none.
fn offset(offsets: &str) -> i64 {
    let of_monotonic = offsets.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers = of_monotonic.unwrap_or_default().split_whitespace().map(str::parse::<i64>);
    let (Some(Ok(seconds)), Some(Ok(ns))) = (numbers.next(), numbers.next()) else { return 0 };
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// Whether the counter runs evenly, and shows the same value on all processors.
fn counter_is_trusted() -> bool {
    if cfg!(target_arch = "aarch64") {
        // The system's clock is the architecture's generic timer.
        return true;
    }
    let source =
        fs::read_to_string(Path::new("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| {
        let flags = processors.lines().find(|line| line.starts_with("flags"));
        flags.is_some_and(|flags| flags.split_whitespace().any(|of_processor| of_processor == flag))
    };
    source.is_ok_and(|source| source.trim() == "tsc") && has("constant_tsc") && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_TWO: HelperClock =
        HelperClock { kind: Clock::Counter, units_per_ns: 2 * UNIT_PER_NS, ahead_ns: 0 };

    #[test]
    fn a_counter_without_a_rate_is_not_used() {
        assert_eq!(HelperClock::of_machine(0), HelperClock::MONOTONIC);
        let of_machine = HelperClock::of_machine(SiteArguments::TICKS as u32);
        assert_eq!(of_machine.units_per_ns(), UNIT_PER_NS, "{of_machine:?}");
    }

    #[test]
    fn units_are_time_and_back() {
        assert_eq!((OF_TWO.units(Nanos(21)), OF_TWO.time(42)), (42, Nanos(21)));
        assert_eq!(OF_TWO.units(Nanos(u64::MAX)), u64::MAX);
        assert_eq!(HelperClock::MONOTONIC.time(u64::MAX), Nanos(u64::MAX));
        assert_eq!(HelperClock { units_per_ns: 0, ..OF_TWO }.time(u64::MAX), Nanos(u64::MAX));
    }

    #[test]
    fn times_lie_on_the_clock_as_they_do_in_time() {
        let reading = Reading::now();
        let now = reading.at();
        let later = OF_TWO.at(Nanos(now.0 + 1_000_000_000));
        assert!(later > reading.ticks(), "{later} {reading:?}");
        assert!(OF_TWO.at(Nanos(now.0 + 5_000)) < later);
        assert_eq!([HelperClock::MONOTONIC, OF_TWO].map(|clock| clock.at(Nanos(u64::MAX))), [u64::MAX; 2]);
        assert_eq!(HelperClock::MONOTONIC.at(Nanos(7)), 7);
    }

    #[test]
    fn the_clock_of_another_time_namespace_is_ahead() {
        let offsets = "monotonic           10         5\nboottime            0         0\n";
        assert_eq!(HelperClock::MONOTONIC.in_namespace(offsets, "").at(Nanos(1)), 10_000_000_006);
        assert_eq!(HelperClock::MONOTONIC.in_namespace(offsets, offsets), HelperClock::MONOTONIC);
        assert_eq!(OF_TWO.in_namespace(offsets, ""), OF_TWO, "a counter knows no namespaces");
        for nonsense in ["", "monotonic", "monotonic x y", "boottime 1 1"] {
            assert_eq!(HelperClock::MONOTONIC.in_namespace(nonsense, ""), HelperClock::MONOTONIC);
        }
        let past = "monotonic -10 0\n";
        assert_eq!(HelperClock::MONOTONIC.in_namespace(past, "").at(Nanos(1)), 0);
    }
}
