//! What is said of load that was not there.

use crate::{
    experiment::record::{LoadChange, Measured, PhaseKind},
    units::Nanos,
};

/// Fewer units than this share are none.
const NONE: f64 = 0.02;
/// What is as improbable as this is no chance.
const CHANCE: f64 = 0.1;

/// What happened to the load, and when.
pub(in crate::experiment) fn said(measured: &Measured, change: &LoadChange) -> String {
    let begun = measured.slices.first().map_or(Nanos(0), |slice| slice.start_ns);
    let after = |to: Nanos, from: Nanos| Nanos(to.0.saturating_sub(from.0) / 100_000_000 * 100_000_000);
    let what = if change.rate < NONE {
        "the load stopped".to_owned()
    } else if change.rate < 1.0 {
        format!("the load fell to {:.0} % of what it was", change.rate * 100.0)
    } else {
        format!("the load grew to {:.1} times what it was", change.rate)
    };
    let when = after(change.start_ns, begun);
    match change.end_ns {
        None => {
            let waited = after(change.waited_until_ns, change.start_ns);
            format!("{what} after {when}, and was not as before {waited} later, without any delay")
        }
        Some(end) => format!("{what} after {when}, for {}", after(end, change.start_ns)),
    }
}

/// Why the load that did not come back takes all verdicts with it, if there is such a thing.
pub(in crate::experiment) fn gone(measured: &Measured) -> Option<String> {
    measured.load_changes.iter().find(|change| change.end_ns.is_none()).map(|change| said(measured, change))
}

/// Why delays themselves may have driven the load away, if they may have: it went each time while something
/// was delayed, and by chance it would also have gone at other times.
pub(in crate::experiment) fn driven_away(measured: &Measured) -> Option<String> {
    let changes = &measured.load_changes;
    let slices = || measured.slices.iter().filter(|slice| slice.phase != PhaseKind::Census);
    let delayed = slices().filter(|slice| !slice.doses.is_empty()).count() as f64;
    let share = delayed / slices().count().max(1) as f64;
    let chance = share.powi(i32::try_from(changes.len()).unwrap_or(i32::MAX));
    let is_no_chance = !changes.is_empty() && changes.iter().all(|change| change.delayed) && chance < CHANCE;
    is_no_chance.then(|| {
        format!(
            "the load went away {} times, each time while functions were delayed: clients may give up on a \
             service that is slower",
            changes.len()
        )
    })
}
