//! Progress inside long units.

use serde::{Deserialize, Serialize};

/// A unit makes a different number of calls if it differs by more than this share.
const ANOTHER: f64 = 0.1;
/// A reading comes a little after the end of a unit, so the calls of a unit may be off by this share.
const LATE: f64 = 0.2;

/// The units of an experiment are steps inside of longer units: calls of a function that each longer unit
/// makes equally often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InnerUnit {
    /// The name of the longer unit.
    pub inside: String,
    /// Units that are under way at once.
    pub under_way: f64,
    /// Steps of longer units in the census; `None` if no unit was observed from its beginning to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub census: Option<StepsOfUnits>,
    /// Steps of longer units in the experiment; `None` if no unit was observed from its beginning to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<StepsOfUnits>,
}

/// Steps between the ends of longer units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsOfUnits {
    /// Longer units, from the end of the first to the end of the last.
    pub units: f64,
    /// Steps in the same time.
    pub steps: f64,
    /// The least and the most steps of a unit.
    pub between: [f64; 2],
}

impl StepsOfUnits {
    /// Steps of a unit.
    pub fn in_unit(&self) -> f64 {
        self.steps / self.units
    }

    /// How far [`StepsOfUnits::in_unit`] may be off, as a share: units that are under way at the beginning
    /// and at the end may be at any step.
    fn error(&self, under_way: f64) -> f64 {
        error_of(self.units, under_way)
    }
}

/// How far the steps of this many units may be off, as a share.
fn error_of(units: f64, under_way: f64) -> f64 {
    ((under_way - 1.0).max(0.0) + LATE) / units
}

impl InnerUnit {
    /// Whether units made more or fewer steps in the experiment than in the census or, if no unit was
    /// observed in the census, whether units of the experiment differ among themselves. If so, steps do not
    /// count the progress of units.
    pub fn is_changed(&self) -> bool {
        let Some(later) = self.experiment else {
            // There was no unit to compare.
            return self.census.is_none();
        };
        let may_differ = |error: f64| ANOTHER + later.error(self.under_way) + error;
        match self.census {
            Some(census) => {
                let differs = later.in_unit() / census.in_unit() - 1.0;
                differs.abs() > may_differ(census.error(self.under_way))
            }
            None => {
                let [least, most] = later.between;
                most / least - 1.0 > may_differ(error_of(1.0, self.under_way))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_no_longer_follow_units_are_noticed() {
        let inside = || "call of generate (llm.py)".to_owned();
        let of = |(units, steps): (f64, f64)| {
            let in_unit = steps / units;
            StepsOfUnits { units, steps, between: [in_unit, in_unit] }
        };
        let is_changed = |under_way, census, later| {
            let (census, experiment) = (Some(of(census)), Some(of(later)));
            InnerUnit { inside: inside(), under_way, census, experiment }.is_changed()
        };
        assert!(!is_changed(1.0, (3.0, 48.0), (50.0, 800.0)));
        assert!(!is_changed(1.0, (3.0, 49.0), (50.0, 800.0)), "a reading came late");
        assert!(is_changed(1.0, (3.0, 48.0), (50.0, 1_000.0)));
        assert!(is_changed(1.0, (3.0, 48.0), (50.0, 600.0)));
        assert!(!is_changed(4.0, (12.0, 228.0), (50.0, 800.0)), "units under way were at any step");
        assert!(is_changed(4.0, (12.0, 480.0), (50.0, 800.0)));
        let alone = |experiment| InnerUnit { inside: inside(), under_way: 1.0, census: None, experiment };
        let between = |between| Some(StepsOfUnits { units: 4.0, steps: 64.0, between });
        assert!(!alone(between([16.0, 17.0])).is_changed());
        assert!(alone(between([12.0, 20.0])).is_changed());
        assert!(alone(None).is_changed(), "no unit was observed at all");
    }
}
