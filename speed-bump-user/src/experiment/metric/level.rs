//! A value that goes up and down, as what can be compared between two moments: its integral over the time.

use crate::units::Nanos;

/// See above.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Level {
    last: Option<(Nanos, f64)>,
    integral: f64,
}

impl Level {
    /// Takes a value that held from then on until the next one.
    pub(crate) fn step(&mut self, at: Nanos, value: f64) {
        if let Some((_, held)) = self.last {
            self.add(at, held);
        }
        self.last = Some((at, value));
    }

    /// Takes a value that was looked at then, and had changed evenly since the last look.
    pub(crate) fn look(&mut self, at: Nanos, value: f64) {
        if let Some((_, before)) = self.last {
            self.add(at, f64::midpoint(before, value));
        }
        self.last = Some((at, value));
    }

    /// The integral until then, in ns times what the value is in, where the last value holds on.
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
    fn between_looks_it_changes_evenly() {
        let mut level = Level::default();
        level.look(Nanos(10), 1.0);
        level.look(Nanos(20), 3.0);
        assert_eq!(level.until(Nanos(20)), 20.0);
    }
}
