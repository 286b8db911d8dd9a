//! Forecasts what an experiment will find, and when, from the noise of its chips, before the first delay.

use super::{
    design::{Asked, Rules},
    draw::{Budget, Known, chances},
    sequence,
};

/// The share of all doses that is assumed to show. If all functions run on one saturated thread, all doses
/// show, and the experiment takes longer.
const SHOWS: f64 = 1.0 / 3.0;
/// Standard errors are this many times as large as with a known baseline.
const BASELINE: f64 = 1.2;
/// Bisections for the number of chips.
const ROUNDS: usize = 40;
/// No experiment has more chips.
const MAX_CHIPS: f64 = 1e7;

/// An experiment that has not begun.
#[derive(Clone, Debug)]
pub struct Forecast<'a> {
    /// What it asks about.
    pub asked: &'a [Asked],
    /// Its rules.
    pub rules: Rules,
    /// The deviation of chips from their neighbours, as a share of a unit's time.
    pub noise: f64,
}

impl Forecast<'_> {
    /// The chances of the functions to get a dose.
    fn chances(&self) -> Vec<f64> {
        let bound = self.rules.max_slowdown;
        let known = |asked: &Asked| Known {
            active: true,
            may_show: 1.0,
            likely_shows: SHOWS.max(1.0 / self.asked.len() as f64),
            part: 1.0,
            thread: asked.thread,
        };
        let known: Vec<Known> = self.asked.iter().map(known).collect();
        chances(&known, Budget { dose: bound, shows: bound, thread: 2.0 * bound })
    }

    /// The worth, as a share of a unit's time, from which on every function has a verdict after this many
    /// chips. `None` if no function's own time is known.
    pub fn worth_after(&self, chips: f64) -> Option<f64> {
        let error_of_one = self.rules.matters_error / self.asked.len().max(1) as f64;
        let missed = |(asked, chance): (&Asked, f64)| {
            let share = asked.share?;
            let on = (chips * chance * (1.0 - chance)).max(f64::MIN_POSITIVE);
            let error = BASELINE * self.noise / (self.rules.max_slowdown * on.sqrt());
            let width = sequence::factor(error, error_of_one, chips.max(5.0)) * error;
            Some(share * width.min(1.0))
        };
        self.asked.iter().zip(self.chances()).filter_map(missed).reduce(f64::max)
    }

    /// The number of chips after which every function that is worth this share, or more, has a verdict;
    /// `None` if there is no such number.
    pub fn chips_for(&self, worth: f64) -> Option<f64> {
        if self.worth_after(MAX_CHIPS)? > worth {
            return None;
        }
        let (mut low, mut high) = (1.0_f64, MAX_CHIPS);
        for _ in 0..ROUNDS {
            let middle = (low * high).sqrt();
            if self.worth_after(middle)? > worth {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(high)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::chips::sweep::RULES;

    fn asked(count: usize) -> Vec<Asked> {
        vec![Asked { share: Some(0.1), thread: 0, is_first: true }; count]
    }

    #[test]
    fn more_functions_more_noise_and_smaller_worth_take_more_chips() {
        let chips = |count, noise, worth| {
            Forecast { asked: &asked(count), rules: RULES, noise }.chips_for(worth).unwrap()
        };
        let few = chips(5, 0.05, 0.03);
        assert!(few < chips(20, 0.05, 0.03) && few < chips(5, 0.1, 0.03) && few < chips(5, 0.05, 0.01));
        assert!((10.0..2_000.0).contains(&few), "{few}");
    }

    #[test]
    fn what_takes_little_is_told_from_the_beginning() {
        let asked = asked(5);
        let forecast = Forecast { asked: &asked, rules: RULES, noise: 0.1 };
        assert!(forecast.chips_for(0.1).unwrap() < 2.0);
        assert_eq!(forecast.chips_for(0.0), None);
        assert_eq!(Forecast { asked: &[], ..forecast }.worth_after(10.0), None);
    }
}
