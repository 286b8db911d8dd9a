//! Axes: the place of a value, as a share of the width or height, and the values of ticks.

use crate::units::Nanos;

/// Limits of the axis of worths: a gain cannot exceed the time per unit.
pub(in crate::report) const WORTHS: (f64, f64) = (-0.5, 1.5);

/// An axis from the lowest to the highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) struct Scale {
    low: f64,
    high: f64,
}

/// A share of a width or height, as SVG writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) struct Percent(f64);

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2}%", self.0)
    }
}

impl Percent {
    /// The distance from `before` to this.
    pub(in crate::report) fn less(self, before: Self) -> Self {
        Self((self.0 - before.0).max(0.0))
    }
}

impl Scale {
    /// A scale that contains these values and a margin. Values that are not finite are ignored.
    pub(in crate::report) fn over(values: impl IntoIterator<Item = f64>) -> Self {
        let within = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let finite = values.into_iter().filter(|value| value.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), within);
        if low > high {
            return Self { low: 0.0, high: 1.0 };
        }
        let more = (high - low).max(high.abs() * 1e-3).max(1e-9) * 0.04;
        Self { low: if low == 0.0 { low } else { low - more }, high: high + more }
    }

    /// Limits the scale: one outlier would leave no room for the other values.
    pub(in crate::report) fn within(self, low: f64, high: f64) -> Self {
        Self { low: self.low.max(low), high: self.high.min(high) }
    }

    /// The distance of a value from the lowest; a value outside is at an end.
    pub(in crate::report) fn along(&self, value: f64) -> Percent {
        Percent(((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0) * 100.0)
    }

    /// The distance of a value from the highest, since y grows downwards.
    pub(in crate::report) fn down(&self, value: f64) -> Percent {
        Percent(100.0 - self.along(value).0)
    }

    /// The same as [`Scale::along`], as a share.
    pub(in crate::report) fn share(&self, value: f64) -> f64 {
        self.along(value).0 / 100.0
    }

    /// The highest value.
    pub(in crate::report) fn high(&self) -> f64 {
        self.high
    }

    /// Whether it contains a value.
    pub(in crate::report) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Round values for ticks, at most this many.
    pub(in crate::report) fn ticks(&self, most: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / most.max(1) as f64;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough * (1.0 - 1e-9)).unwrap_or(power);
        let (first, last) = ((self.low / step).ceil(), (self.high / step).floor());
        if !(step > 0.0 && (last - first).abs() < 1e3) {
            return Vec::new();
        }
        (first as i64..=last as i64).map(|number| number as f64 * step).collect()
    }
}

/// The unit for times up to this many ns, and how many ns it has.
pub(in crate::report) fn unit_of_time(most: f64) -> (&'static str, f64) {
    match most {
        most if most < 1e3 => ("ns", 1.0),
        most if most < 1e6 => ("us", 1e3),
        most if most < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

/// A number with up to three decimals, without trailing zeros.
pub(in crate::report) fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A time in seconds from one moment to another.
pub(in crate::report) fn seconds(from: Nanos, to: Nanos) -> f64 {
    to.0.saturating_sub(from.0) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_places() {
        let scale = Scale { low: -1.0, high: 3.0 };
        assert_eq!(scale.along(0.0).to_string(), "25.00%");
        assert_eq!(scale.down(0.0).to_string(), "75.00%");
        assert_eq!(scale.along(9.0).to_string(), "100.00%", "at the end");
        assert_eq!(scale.along(f64::NAN).to_string(), "NaN%", "no caller passes it");
        assert!(scale.holds(3.0) && !scale.holds(3.1));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale { low: 0.0, high: 1.1 }.ticks(4), [0.0, 0.5, 1.0]);
        assert_eq!(Scale { low: -3.0, high: 27.0 }.ticks(4), [0.0, 10.0, 20.0]);
        assert_eq!(Scale { low: 0.0, high: 0.0 }.ticks(3), Vec::<f64>::new());
    }

    #[test]
    fn a_scale_contains_its_values() {
        let scale = Scale::over([0.0, 5.0, f64::NAN]);
        assert!(scale.low == 0.0 && scale.holds(5.0) && scale.high < 6.0, "{scale:?}");
        assert_eq!(Scale::over([]), Scale { low: 0.0, high: 1.0 });
        let one = Scale::over([3.0]);
        assert!(one.low < 3.0 && one.high > 3.0 && !one.ticks(3).is_empty(), "{one:?}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.5, 10.0, -0.0, 0.125].map(short), ["0.5", "10", "0", "0.125"]);
        assert_eq!(unit_of_time(5e6), ("ms", 1e6));
    }
}
