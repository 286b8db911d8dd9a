//! The functions that were not looked at one by one.

use super::{
    contrast::{Contrast, contrasts},
    estimate::{Estimate, estimate},
    factor::Factor,
    findings::{CONFIDENCE, LESS_TIME},
    screen_bound::OfScreen,
    verdict::{SURE, Verdict, is_below, is_less},
};
use crate::{
    record::{Candidate, Measured, PhaseKind, Treatment},
    screen::{rows, screened},
};

/// What all functions did together, where the titration ended with that.
pub(crate) fn together(measured: &Measured) -> Vec<Contrast> {
    let mut slices: Vec<_> = measured.of_phase(PhaseKind::Titrate).collect();
    let Some(last) = slices.iter().rev().find(|slice| slice.treatment == Treatment::Several) else {
        return Vec::new();
    };
    let doses = last.doses.clone();
    slices.retain(|slice| slice.treatment == Treatment::Control || slice.doses == doses);
    contrasts(slices.into_iter(), Treatment::Several, u32::MAX, measured.by)
}

/// The functions that were not looked at one by one: what all of them did together bounds what each does.
pub(super) fn left(
    measured: &Measured,
    unit: Option<f64>,
    together: &[Contrast],
    alike: Option<Estimate>,
) -> Vec<Factor> {
    let treated = measured.treated();
    let tells_of_members = |of: &Treatment| match *of {
        Treatment::Group { group } => {
            measured.groups.get(group as usize).is_some_and(|group| !group.beside_members)
        }
        Treatment::Rest => false,
        _ => true,
    };
    let is_tried = |number: u32| {
        treated.iter().any(|of| tells_of_members(of) && measured.members(*of).contains(&number))
    };
    // What later phases say of a function is more.
    let later = measured.of_phase(PhaseKind::Screen).chain(measured.of_phase(PhaseKind::Confirm)).next();
    let bound = estimate(together, CONFIDENCE).filter(|_| later.is_none());
    let all: f64 = together.iter().map(|of| of.delay).sum::<f64>() / together.len().max(1) as f64;
    let in_rest = measured.rest();
    let of_screen = OfScreen::new(measured);
    let factor = |(number, candidate): (u32, &Candidate)| {
        let mut factor = Factor::of_candidate(measured, candidate);
        let share = factor.share(unit);
        if candidate.calls == 0 && candidate.left_out().is_none() {
            factor.verdict = Verdict::Dismissed;
            factor.reason = Some("not called".to_owned());
        } else if share.is_some_and(|share| share < measured.rules.worth) {
            factor.verdict = Verdict::Dismissed;
            factor.reason = Some("own time is less than what would be worth it".to_owned());
        } else if let Some(why) = candidate.left_out() {
            factor.reason = Some(why.to_owned());
        } else if let Some(bound) = bound
            && let delay = delay_in(measured, number)
            && delay > 0.0
        {
            // The others can only have added to it.
            let high = bound.high.max(0.0) * all / delay;
            factor.high = Some(high);
            factor.worth_high = share.map(|share| high * share);
            if bound.high < 0.0 {
                factor.reason = Some(LESS_TIME.to_owned());
            } else if factor.worth_high.is_some_and(|worth| worth < measured.rules.worth)
                || high < measured.rules.threshold
            {
                factor.verdict = Verdict::DoesNotMatter;
                factor.slack_ns = Some(delay);
            }
        } else if unit.is_some_and(|unit| measured.is_too_often(candidate, unit)) {
            factor.reason = Some(format!(
                "it is called so often that the least delay of a call, {}, would slow units down too much; \
                 --max-slowdown allows more",
                candidate.floor_ns
            ));
        } else if alike.is_none()
            && let Some(effect) = of_screen.effect(number)
            && let Some(found) = effect.interval(CONFIDENCE)
        {
            factor.set(found, unit);
            let bound = effect.bound();
            let is_less = effect.interval(SURE).is_some_and(|found| is_less(&found, share, &measured.rules));
            let is_worth_little =
                !is_less && bound.is_some_and(|bound| is_below(&bound, &found, share, &measured.rules));
            factor.verdict = if is_worth_little { Verdict::DoesNotMatter } else { Verdict::Undecided };
            factor.reason = (!is_worth_little)
                .then(|| "it was looked at among others only: -t with its name looks at it alone".to_owned());
        } else if let Some(alike) = alike {
            factor.set(alike, unit);
            factor.verdict = Verdict::Jointly;
            factor.reason = Some("all functions together; it was not looked at one by one".to_owned());
        } else if in_rest.contains(&number) {
            factor.reason = Some("it was looked at with everything else".to_owned());
        }
        factor
    };
    let numbered = (0..).zip(&measured.candidates);
    numbered.filter(|(number, _)| !is_tried(*number)).map(factor).collect()
}

/// The sensitivity that all functions have, where the screen found that their delays show alike.
pub(super) fn alike(measured: &Measured) -> Option<Estimate> {
    let rows = rows(measured.of_phase(PhaseKind::Screen), measured.by);
    let is_alike = screened(&rows, measured.candidates.len(), 0).all_alike;
    is_alike.then(|| of_all(measured)).flatten()
}

/// By how much all delays of the screen show, taken together.
pub(crate) fn of_all(measured: &Measured) -> Option<Estimate> {
    estimate(&of_all_contrasts(measured), CONFIDENCE)
}

/// What all delays of the screen did.
pub(super) fn of_all_contrasts(measured: &Measured) -> Vec<Contrast> {
    // Slices of a block that delay the same functions in all, one half of them each, are one contrast.
    let slices = measured.of_phase(PhaseKind::Screen);
    contrasts(slices, Treatment::Several, u32::MAX, measured.by)
}

/// The delay per unit of a function where all were delayed at once for the last time.
fn delay_in(measured: &Measured, number: u32) -> f64 {
    let last =
        measured.of_phase(PhaseKind::Titrate).filter(|slice| slice.treatment == Treatment::Several).last();
    let of = last.and_then(|slice| {
        let of = slice.delivered.iter().find(|of| of.candidate == number)?;
        Some(of.delivered_ns.0 as f64 / slice.units.max(0.5))
    });
    of.unwrap_or(0.0)
}
