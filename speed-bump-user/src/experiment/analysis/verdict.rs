//! What is said of a function, and when it may be said.

use serde::{Deserialize, Serialize};

use super::{
    contrast::Contrast,
    estimate::{Estimate, LEAST_BLOCKS, chance, estimate},
    hinge::{Hinge, hinge},
    looks::{self, holm},
};
use crate::experiment::record::Rules;

/// What is said of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its delay shows.
    Matters,
    /// It is worth less than what is asked for, or its delay shows less than that. This is shown, and not
    /// only not refuted.
    DoesNotMatter,
    /// It matters together with others, and none of them alone: they share slack.
    Jointly,
    /// Neither is shown.
    Undecided,
    /// It is not worth an experiment: it takes too little time.
    Dismissed,
}

/// What was measured of a treatment that a verdict is about.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Of all its blocks.
    pub contrasts: Vec<Contrast>,
    /// Own time per unit over the time of a unit; `None` where that is not known.
    pub share: Option<f64>,
}

/// The verdicts about some treatments that were tried beside each other, after so many blocks. Each is of the
/// first look that decided it.
pub fn verdicts(trials: &[Trial], rules: &Rules, blocks: u32) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Undecided; trials.len()];
    for look in 0..looks::done(blocks, rules.planned_blocks) {
        let level = looks::levels()[look as usize];
        let until = looks::until(look, rules.planned_blocks);
        let seen: Vec<Vec<Contrast>> = trials.iter().map(|trial| seen(trial, until)).collect();
        let chances: Vec<f64> = seen.iter().map(|of| chance(of).unwrap_or(1.0)).collect();
        let significant = holm(&chances, level);
        for (index, trial) in trials.iter().enumerate() {
            if verdicts[index] != Verdict::Undecided {
                continue;
            }
            let slower = seen[index].iter().map(|of| of.time).sum::<f64>() > 0.0;
            if is_too_little(&seen[index], trial.share, rules, level) {
                verdicts[index] = Verdict::DoesNotMatter;
            } else if significant[index] && slower && !is_beyond(&seen[index]) {
                verdicts[index] = Verdict::Matters;
            }
        }
    }
    verdicts
}

/// What a look sees. Where delay stays hidden up to some point, that is what there is to say of the function
/// as it is: what is beyond is left out.
fn seen(trial: &Trial, until: u32) -> Vec<Contrast> {
    let seen: Vec<Contrast> = trial.contrasts.iter().copied().filter(|of| of.block < until).collect();
    let bend = hinge(&seen);
    before(seen, bend)
}

/// The same of these contrasts, which bend there.
pub(super) fn before(seen: Vec<Contrast>, bend: Option<Hinge>) -> Vec<Contrast> {
    let hidden =
        |bend: Hinge| -> Vec<Contrast> { seen.iter().copied().filter(|of| of.delay <= bend.low).collect() };
    // A bend before nearly all of the delays says nothing of them.
    let hidden = bend.map(hidden).filter(|hidden| hidden.len() >= LEAST_BLOCKS);
    hidden.unwrap_or(seen)
}

/// Whether nearly all of these are beyond a bend: what shows there says nothing of the function as it is.
fn is_beyond(seen: &[Contrast]) -> bool {
    hinge(seen).is_some_and(|bend| {
        bend.low > 0.0 && seen.iter().filter(|of| of.delay <= bend.low).count() < LEAST_BLOCKS
    })
}

/// Whether the function is shown to matter less than what is asked for, with this error on each side.
fn is_too_little(contrasts: &[Contrast], share: Option<f64>, rules: &Rules, level: f64) -> bool {
    let found = estimate(contrasts, 1.0 - 2.0 * level);
    found.is_some_and(|found| is_below(&found, share, rules))
}

/// Whether all of an interval is less than what is asked for.
pub(super) fn is_below(found: &Estimate, share: Option<f64>, rules: &Rules) -> bool {
    let by_worth = share.is_some_and(|share| found.high * share < rules.worth);
    by_worth || found.high.abs().max(found.low.abs()) < rules.threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { worth: 0.01, threshold: 0.1, max_slowdown: 0.2, closed_loop: false, planned_blocks: 40 };

    /// A trial of so many blocks with delays of 100, of which this share shows, and noise that repeats.
    fn trial(share: Option<f64>, sensitivity: f64, noise: f64, blocks: u32) -> Trial {
        let signs = [1.0, -1.0, 0.5, -0.5, 0.0, -1.0, 1.0];
        let contrasts = (0..blocks).zip(signs.into_iter().cycle()).map(|(block, sign)| Contrast {
            block,
            time: 100.0 * sensitivity + sign * noise,
            delay: 100.0,
        });
        Trial { contrasts: contrasts.collect(), share }
    }

    #[test]
    fn what_shows_matters_and_what_is_shown_not_to_does_not() {
        let trials = [
            trial(Some(0.3), 1.0, 5.0, 40),
            trial(Some(0.3), 0.0, 2.0, 40),
            trial(Some(0.3), 0.05, 60.0, 40),
            // It shows, and is worth nothing.
            trial(Some(0.005), 1.0, 5.0, 40),
            // It is worth it, and does not show.
            trial(None, 0.02, 5.0, 40),
        ];
        use Verdict::{DoesNotMatter, Matters, Undecided};
        let expected = [Matters, DoesNotMatter, Undecided, DoesNotMatter, DoesNotMatter];
        assert_eq!(verdicts(&trials, &RULES, 40), expected);
    }

    #[test]
    fn nothing_is_said_before_the_first_look_nor_without_blocks() {
        let trials = [trial(Some(0.3), 1.0, 5.0, 9)];
        assert_eq!(verdicts(&trials, &RULES, 9), [Verdict::Undecided]);
        let trials = [trial(Some(0.3), 1.0, 5.0, 7)];
        assert_eq!(verdicts(&trials, &RULES, 40), [Verdict::Undecided]);
    }

    #[test]
    fn a_verdict_stays() {
        // Ten blocks in which it shows, and thirty in which it does not.
        let mut first = trial(Some(0.3), 1.0, 1.0, 10);
        let rest = trial(Some(0.3), 0.0, 1.0, 40).contrasts.into_iter().skip(10);
        first.contrasts.extend(rest);
        assert_eq!(verdicts(&[first], &RULES, 40), [Verdict::Matters]);
    }

    #[test]
    fn less_time_is_not_more() {
        assert_eq!(verdicts(&[trial(Some(0.3), -1.0, 5.0, 40)], &RULES, 40), [Verdict::DoesNotMatter]);
        assert_eq!(verdicts(&[trial(None, -1.0, 5.0, 40)], &RULES, 40), [Verdict::Undecided]);
    }

    #[test]
    fn what_is_beyond_the_slack_is_not_of_the_function_as_it_is() {
        let mut hidden = trial(Some(0.3), 0.0, 1.0, 40);
        for of in &mut hidden.contrasts {
            let delay = [50.0, 100.0, 200.0][of.block as usize % 3];
            (of.time, of.delay) = (of.time + (delay - 120.0_f64).max(0.0), delay);
        }
        assert_eq!(verdicts(&[hidden], &RULES, 40), [Verdict::DoesNotMatter]);
    }
}
