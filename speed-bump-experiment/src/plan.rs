//! The plan of an experiment: how it would divide its time, and when it would have verdicts.

use std::time::Duration;

use super::{
    analysis::replay::{Chips, rules},
    chips::{
        design::{Asked, Design, Rules},
        forecast::Forecast,
    },
    record::Measured,
    run::{Options, Pace, Times, arms, times},
};
use crate::units::Nanos;

/// The worths of functions for which a forecast says when they have verdicts.
const WORTHS: [f64; 4] = [0.1, 0.05, 0.03, 0.015];
/// The noises of chips for which a plan has a forecast.
const NOISES: [f64; 3] = [0.02, 0.05, 0.15];

/// How an experiment would divide its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How the time is divided.
    pub times: Times,
    /// All of the time.
    pub total: Duration,
    /// What it would ask about.
    pub asked: Vec<Asked>,
    /// Its rules.
    pub rules: Rules,
}

impl Plan {
    /// A plan for the functions of this record, which has no slices yet, for units at this pace.
    pub fn new(options: &Options, measured: &Measured, pace: Pace) -> Self {
        let mut measured = measured.clone();
        let arms = arms(&mut measured, pace.unit, options.group);
        let asked = Chips::new(&measured, arms, pace.unit).asked(&measured);
        Self { times: times(options, pace), total: options.total, asked, rules: rules(&measured) }
    }

    /// The plan in words, line by line.
    pub fn lines(&self) -> Vec<String> {
        let Times { slice, burn_in, census } = self.times;
        let mut lines = vec![
            format!("census: {}, no delays", rounded(census)),
            format!(
                "then chips of {}, and {} before each: in each one a function is delayed or not, at random",
                rounded(slice),
                rounded(burn_in)
            ),
        ];
        lines.extend(NOISES.iter().map(|noise| {
            let said = forecast(&self.asked, self.rules, *noise, self.times, Nanos::from(self.total));
            let said = said.unwrap_or_else(|| "this time is not enough".to_owned());
            format!("where chips differ by {:.0} %: {said}", noise * 100.0)
        }));
        lines
    }
}

/// `by 20s functions worth over 5.0 %, by 60s over 3.0 %`: when the functions over each worth have verdicts,
/// counted from the beginning of the census. `None` if none has one within `total`.
pub fn forecast(asked: &[Asked], rules: Rules, noise: f64, times: Times, total: Nanos) -> Option<String> {
    // The service's own code has the first turn.
    let mut first: Vec<Asked> = asked.iter().filter(|of| of.is_first).copied().collect();
    let own = if first.is_empty() || first.len() == asked.len() { "" } else { " of the service" };
    if first.is_empty() {
        first = asked.to_vec();
    }
    let asked = first.as_slice();
    let forecast = Forecast { asked, rules, noise };
    let chip = times.whole_slice().0 as f64;
    // No function is worth more than it takes.
    let most = asked.iter().filter_map(|of| of.share).fold(0.0, f64::max);
    let worths = WORTHS.into_iter().chain([rules.worth]);
    let worths = worths.filter(|worth| *worth >= rules.worth && *worth < most);
    let mut parts: Vec<(u64, f64)> = Vec::new();
    for worth in worths {
        let Some(chips) = forecast.chips_for(worth) else { continue };
        let chips = chips.max(rules.min_chips as f64).max(Design::FIRST_ESTIMATE as f64);
        let seconds = ((times.census.0 as f64 + chips * chip) / 1e9).ceil() as u64;
        if seconds.saturating_mul(1_000_000_000) > total.0 {
            continue;
        }
        match parts.last_mut() {
            Some(last) if last.0 == seconds => last.1 = worth,
            _ => parts.push((seconds, worth)),
        }
    }
    let (first, rest) = parts.split_first()?;
    let mut said = format!("by {}s functions{own} worth over {:.1} %", first.0, first.1 * 100.0);
    for (seconds, worth) in rest {
        said += &format!(", by {seconds}s over {:.1} %", worth * 100.0);
    }
    Some(said)
}

/// Rounds down to tenths of a second, or to milliseconds.
fn rounded(time: Nanos) -> Nanos {
    let unit = if time.0 < 1_000_000_000 { 1_000_000 } else { 100_000_000 };
    Nanos(time.0 / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chips::sweep::RULES;

    fn plan(seconds: u64) -> Plan {
        let total = Duration::from_secs(seconds);
        let options = Options { quick: true, ..Options::new(total) };
        let times = times(&options, Pace { unit: 10e6, under_way: Some(1.0) });
        let asked = vec![Asked { share: Some(0.2), thread: 0, is_first: true }; 10];
        Plan { times, total, asked, rules: RULES }
    }

    #[test]
    fn it_is_told_in_words() {
        let lines = plan(120).lines();
        assert_eq!(lines[0], "census: 3s, no delays");
        assert_eq!(
            lines[1],
            "then chips of 80ms, and 0ns before each: in each one a function is delayed or not, at random"
        );
        assert!(lines[2].starts_with("where chips differ by 2 %: by "), "{lines:?}");
        assert!(lines[2].ends_with("over 1.0 %"), "{lines:?}");
        // More noise tells less.
        assert!(!lines[4].contains("over 1.0 %"), "{lines:?}");
    }

    #[test]
    fn a_forecast_is_of_the_functions_that_have_the_first_turn() {
        let mut plan = plan(120);
        for asked in plan.asked.iter_mut().skip(5) {
            asked.is_first = false;
        }
        let lines = plan.lines();
        assert!(lines[2].contains(" functions of the service worth over "), "{lines:?}");
    }

    #[test]
    fn what_does_not_fit_is_not_promised() {
        let lines = plan(4).lines();
        assert_eq!(lines[4], "where chips differ by 15 %: this time is not enough");
    }
}
