//! What is said of a function, and when it may be said.

use serde::{Deserialize, Serialize};

use super::{
    contrast::Contrast,
    estimate::{Estimate, MIN_BLOCKS, chance, estimate},
    findings::CONFIDENCE,
    hinge::{Hinge, hinge},
    interim::{self, holm},
};
use crate::record::Rules;

/// That units take less time where they do not: the error that is allowed in all, as it takes all verdicts
/// with it.
const FASTER: f64 = 0.01;
/// What is below nothing with this confidence is not said to do nothing.
pub(super) const SURE: f64 = 0.99;

/// What is said of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its delay shows, and as far as is known it is worth what is asked for.
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

/// What is found of a treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// What is said of it.
    pub(super) verdict: Verdict,
    /// Whether its delay shows, be it worth much or little.
    pub(super) shows: bool,
    /// Whether units take less time with its delay, by what would matter if it were more.
    pub(super) faster: bool,
}

/// What is found of some treatments that were tried beside each other, after so many blocks. What the latest
/// look has shown stands, and what an earlier one showed not to matter.
pub(super) fn judge(trials: &[Trial], rules: &Rules, blocks: u32) -> Vec<Judged> {
    let open = Judged { verdict: Verdict::Undecided, shows: false, faster: false };
    let mut judged = vec![open; trials.len()];
    for look in 0..interim::done(blocks, rules.planned_blocks) {
        let level = interim::levels()[look as usize];
        let until = interim::until(look, rules.planned_blocks);
        let seen: Vec<Vec<Contrast>> = trials.iter().map(|trial| seen(trial, until)).collect();
        let significant_at = |level| significant(&seen, level);
        let (significant, faster) =
            (significant_at(level), significant_at(FASTER / f64::from(interim::LOOKS)));
        for (index, (trial, judged)) in trials.iter().zip(&mut judged).enumerate() {
            let seen = &seen[index];
            let slower = seen.iter().map(|of| of.time).sum::<f64>() > 0.0;
            judged.shows = significant[index] && slower && !is_beyond(seen);
            let told = estimate(seen, CONFIDENCE);
            let less = estimate(seen, SURE);
            let is_less = less.is_some_and(|less| is_less(&less, trial.share, rules));
            judged.faster = is_less && faster[index];
            if judged.verdict == Verdict::DoesNotMatter && !judged.faster {
                continue;
            }
            let is_worth_it = told.is_some_and(|told| is_above(told.sensitivity, trial.share, rules));
            let bound = || estimate(seen, 1.0 - 2.0 * level);
            let is_too_little =
                |told| !is_less && bound().is_some_and(|bound| is_below(&bound, &told, trial.share, rules));
            judged.verdict = if judged.shows && is_worth_it {
                Verdict::Matters
            } else if told.is_some_and(is_too_little) {
                Verdict::DoesNotMatter
            } else {
                Verdict::Undecided
            };
        }
    }
    judged
}

/// Which of them show, with this error in all. What was not tried yet is no test.
fn significant(seen: &[Vec<Contrast>], level: f64) -> Vec<bool> {
    let chances: Vec<Option<f64>> = seen.iter().map(|of| chance(of)).collect();
    let tested: Vec<f64> = chances.iter().copied().flatten().collect();
    let mut found = holm(&tested, level).into_iter();
    chances.iter().map(|chance| chance.is_some() && found.next().unwrap_or(false)).collect()
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
    let hidden = bend.map(hidden).filter(|hidden| hidden.len() >= MIN_BLOCKS);
    hidden.unwrap_or(seen)
}

/// Whether nearly all of these are beyond a bend: what shows there says nothing of the function as it is.
fn is_beyond(seen: &[Contrast]) -> bool {
    hinge(seen).is_some_and(|bend| {
        bend.low > 0.0 && seen.iter().filter(|of| of.delay <= bend.low).count() < MIN_BLOCKS
    })
}

/// Whether what a sensitivity is worth is no less than what is asked for. Where that is not known, it is
/// [`Rules::threshold`] that is asked for.
pub(super) fn is_above(sensitivity: f64, share: Option<f64>, rules: &Rules) -> bool {
    match share {
        Some(share) => sensitivity * share >= rules.worth,
        None => sensitivity >= rules.threshold,
    }
}

/// Whether units take less time, by as much as would matter if it were more.
pub(super) fn is_less(found: &Estimate, share: Option<f64>, rules: &Rules) -> bool {
    found.high < 0.0 && is_above(-found.sensitivity, share, rules)
}

/// Whether all of an interval is less than what is asked for. `told` is the one that is told. Where that is
/// above nothing, and the estimate is worth it, it is not said that too little shows: of N workers each delay
/// shows for one part in N. Where units take less time ([`is_less`]), it is not to be said either: that is
/// not what a function does that does nothing.
pub(super) fn is_below(bound: &Estimate, told: &Estimate, share: Option<f64>, rules: &Rules) -> bool {
    let by_worth = share.is_some_and(|share| bound.high * share < rules.worth);
    let seems_worth_it = told.low > 0.0 && is_above(told.sensitivity, share, rules);
    by_worth || !seems_worth_it && bound.high.abs().max(bound.low.abs()) < rules.threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { worth: 0.01, threshold: 0.1, max_slowdown: 0.2, closed_loop: false, planned_blocks: 40 };

    const OPEN: Judged = Judged { verdict: Verdict::Undecided, shows: false, faster: false };

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

    fn verdicts(trials: &[Trial], rules: &Rules, blocks: u32) -> Vec<Verdict> {
        judge(trials, rules, blocks).iter().map(|of| of.verdict).collect()
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

    /// Ten blocks in which it shows, and thirty in which this share does.
    fn fading(share: Option<f64>, sensitivity: f64) -> Trial {
        let mut first = trial(share, 1.0, 1.0, 10);
        let rest = trial(share, sensitivity, 1.0, 40).contrasts.into_iter().skip(10);
        first.contrasts.extend(rest);
        first
    }

    #[test]
    fn what_shows_is_what_the_latest_look_shows() {
        assert_eq!(verdicts(&[fading(Some(0.3), 1.0)], &RULES, 10), [Verdict::Matters]);
        assert_eq!(verdicts(&[fading(Some(0.3), 0.5)], &RULES, 40), [Verdict::Matters]);
        // It shows in ten, whatever is in the others.
        let judged = judge(&[fading(Some(0.3), 0.0)], &RULES, 40);
        assert_eq!(judged, [Judged { verdict: Verdict::Undecided, shows: true, ..OPEN }]);
        let judged = judge(&[fading(Some(0.3), -0.1)], &RULES, 40);
        assert_eq!(judged, [Judged { verdict: Verdict::Undecided, shows: false, ..OPEN }]);
        // It was shown to be worth too little, and shows.
        let judged = judge(&[trial(Some(0.005), 1.0, 5.0, 40)], &RULES, 40);
        assert_eq!(judged, [Judged { verdict: Verdict::DoesNotMatter, shows: true, ..OPEN }]);
    }

    #[test]
    fn what_is_not_tried_yet_takes_nothing_from_what_is() {
        // With ten tests more it would not be significant.
        let little = trial(Some(0.3), 0.35, 90.0, 40);
        let alone = judge(std::slice::from_ref(&little), &RULES, 40);
        assert_eq!(alone, [Judged { verdict: Verdict::Matters, shows: true, ..OPEN }]);
        let mut all = vec![trial(None, 0.0, 0.0, 0); 10];
        all.push(little);
        assert_eq!(judge(&all, &RULES, 40)[10], alone[0]);
    }

    #[test]
    fn what_shows_for_sure_and_may_be_worth_too_little_is_undecided() {
        // About 0.9 % of a unit, 0.3 to 1.4; by the interval of a late look more than a tenth may show.
        let little = trial(Some(0.09), 0.1, 9.0, 40);
        let judged = judge(&[little], &RULES, 40);
        assert_eq!(judged, [Judged { verdict: Verdict::Undecided, shows: true, ..OPEN }]);
        // Nothing is known of what this one takes.
        let unknown = judge(&[trial(None, 0.09, 9.0, 40)], &RULES, 40);
        assert_eq!(unknown, [Judged { verdict: Verdict::Undecided, shows: true, ..OPEN }]);
        assert_eq!(verdicts(&[trial(None, 0.12, 9.0, 40)], &RULES, 40), [Verdict::Matters]);
    }

    #[test]
    fn of_many_workers_each_shows_little() {
        // Sixteen, in half of whose time it is: 50 % of a unit's time, and for sure less than a tenth shows.
        let half = trial(Some(8.0), 1.0 / 16.0, 1.0, 40);
        // The same where it is hidden.
        let hidden = trial(Some(8.0), 0.0, 1.0, 40);
        // It seems to be worth it, though it is not shown yet.
        let unsure = trial(Some(8.0), 1.0 / 16.0, 12.0, 16);
        use Verdict::{DoesNotMatter, Matters, Undecided};
        assert_eq!(verdicts(&[half, hidden, unsure], &RULES, 40), [Matters, DoesNotMatter, Undecided]);
    }

    #[test]
    fn less_time_is_neither_more_nor_nothing() {
        for share in [Some(0.3), None] {
            let judged = judge(&[trial(share, -1.0, 5.0, 40)], &RULES, 40);
            assert_eq!(judged, [Judged { faster: true, ..OPEN }]);
            // As much as noise makes of it.
            let judged = judge(&[trial(share, -1.0, 800.0, 40)], &RULES, 40);
            assert_eq!(judged, [OPEN]);
        }
        // A little less would not matter if it were more.
        let judged = judge(&[trial(Some(0.03), -0.03, 0.5, 40)], &RULES, 40);
        assert_eq!(judged, [Judged { verdict: Verdict::DoesNotMatter, ..OPEN }]);
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
