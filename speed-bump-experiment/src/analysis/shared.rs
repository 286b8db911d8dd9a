//! Functions that share slack: each alone stays hidden, and together they show.

use super::{
    contrast::contrasts,
    estimate::estimate,
    findings::{CONFIDENCE, verdicts_of},
    verdict::Verdict,
};
use crate::record::{Measured, PhaseKind, Treatment};

/// What single functions explain less than this part of is not explained.
const EXPLAINED: f64 = 0.5;

/// The functions to look at together next, by group; none where there is nothing to find out. `share` of a
/// unit's time for each of all functions had slowed a unit down by `up`.
pub fn hidden_together(measured: &Measured, share: f64, up: f64) -> Vec<Vec<u32>> {
    let verdicts = verdicts_of(measured);
    let joined: Vec<u32> = smallest(measured).collect();
    if joined.is_empty() {
        return first(measured, &verdicts, share, up).into_iter().collect();
    }
    let matters = |group: &u32| verdicts.contains(&(Treatment::Group { group: *group }, Verdict::Matters));
    joined.into_iter().filter(matters).flat_map(|group| halves(measured, group)).collect()
}

/// The groups of functions that share slack, without those of which a part was looked at.
fn smallest(measured: &Measured) -> impl Iterator<Item = u32> {
    joined(measured).filter(|of| !joined(measured).any(|other| is_part(measured, other, *of)))
}

/// The groups of functions that share slack, by number.
pub(super) fn joined(measured: &Measured) -> impl Iterator<Item = u32> {
    (0..).zip(&measured.groups).filter(|(_, group)| group.shares_slack).map(|(number, _)| number)
}

/// Whether a group is of some of the functions of another one, and not of all.
pub(super) fn is_part(measured: &Measured, part: u32, whole: u32) -> bool {
    let [part, whole] = [part, whole].map(|group| measured.members(Treatment::Group { group }));
    part.len() < whole.len() && part.iter().all(|of| whole.contains(of))
}

/// All functions that do not matter, each of them alone, where the others explain too little of what all did.
fn first(measured: &Measured, verdicts: &[(Treatment, Verdict)], share: f64, up: f64) -> Option<Vec<u32>> {
    let (mut hidden, mut explained) = (Vec::new(), 0.0);
    for &of in verdicts {
        match of {
            (Treatment::Function { candidate }, Verdict::DoesNotMatter) => hidden.push(candidate),
            (of, _) => {
                let of = contrasts(measured.of_phase(PhaseKind::Confirm), of, u32::MAX, measured.by);
                // Nothing is known of it yet: it may explain all.
                let found = estimate(&of, CONFIDENCE)?;
                explained += found.high.max(0.0) * share;
            }
        }
    }
    (hidden.len() >= 2 && explained < EXPLAINED * up).then_some(hidden)
}

/// The halves of a group, where they are two functions or more.
fn halves(measured: &Measured, group: u32) -> Vec<Vec<u32>> {
    let members = measured.members(Treatment::Group { group });
    if members.len() < 4 {
        return Vec::new();
    }
    let (one, other) = members.split_at(members.len() / 2);
    vec![one.to_vec(), other.to_vec()]
}
