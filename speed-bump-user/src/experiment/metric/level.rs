//! The integral over time of a value that goes up and down, which can be compared between two moments.

use crate::units::Nanos;

/// An integral.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Level {
    last: Option<(Nanos, f64)>,
    integral: f64,
}

impl Level {
    /// Adds a value that holds from `at` until the next one.
    pub(crate) fn step(&mut self, at: Nanos, value: f64) {
        if let Some((_, held)) = self.last {
            self.add(at, held);
        }
        self.last = Some((at, value));
    }

    /// Adds a value that was read at `at`, and has changed evenly since the last one.
    pub(crate) fn add_even(&mut self, at: Nanos, value: f64) {
        if let Some((_, before)) = self.last {
            self.add(at, f64::midpoint(before, value));
        }
        self.last = Some((at, value));
    }

    /// The integral until `at`, in ns times the value's unit. The last value holds until then.
    pub(crate) fn until(&self, at: Nanos) -> f64 {
        let since = self.last.map_or(0.0, |(then, value)| at.0.saturating_sub(then.0) as f64 * value);
        self.integral + since
    }

    fn add(&mut self, at: Nanos, value: f64) {
        let span = self.last.map_or(0, |(then, _)| at.0.saturating_sub(then.0));
        self.integral += span as f64 * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_hold_until_the_next_one() {
        let mut level = Level::default();
        assert_eq!(level.until(Nanos(5)), 0.0);
        level.step(Nanos(10), 3.0);
        level.step(Nanos(20), -1.0);
        assert_eq!((level.until(Nanos(20)), level.until(Nanos(30))), (30.0, 20.0));
    }

    #[test]
    fn between_readings_it_changes_evenly() {
        let mut level = Level::default();
        level.add_even(Nanos(10), 1.0);
        level.add_even(Nanos(20), 3.0);
        assert_eq!(level.until(Nanos(20)), 20.0);
    }
}
