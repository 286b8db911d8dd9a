//! Describes times without the usual load.

use crate::{
    record::{LoadChange, Measured, StartedLoad},
    units::Nanos,
};

/// A smaller share of the usual rate counts as none.
const NONE: f64 = 0.02;
/// A service whose functions are called at this share of the usual rate, or more, has work.
const MIN_CALLED: f64 = 0.3;
/// The load may go away this often while functions are delayed: they are delayed most of the time.
const MAX_TIMES: usize = 2;

/// What happened to the load, and when.
pub(crate) fn describe(measured: &Measured, change: &LoadChange) -> String {
    let begun = measured.slices.first().map_or(Nanos(0), |slice| slice.start_ns);
    let after = |to: Nanos, from: Nanos| Nanos(to.0.saturating_sub(from.0) / 100_000_000 * 100_000_000);
    let what = if change.rate < NONE {
        return stopped(
            change,
            after(change.start_ns, begun),
            after(change.waited_until_ns, change.start_ns),
        );
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

/// Describes the end of all units. Either no requests come, or the service does not answer: calls of its
/// functions and unanswered requests tell which, if anything does.
fn stopped(change: &LoadChange, begun: Nanos, lasted: Nanos) -> String {
    if let Some(end) = change.end_ns {
        let lasted = Nanos(end.0.saturating_sub(change.start_ns.0) / 100_000_000 * 100_000_000);
        return format!("the load stopped after {begun}, for {lasted}");
    }
    let then = format!("and was not as before {lasted} later, without any delay");
    let unanswered = change.unanswered.filter(|count| *count > 0);
    match (change.calls, unanswered) {
        (Some(calls), _) if calls >= MIN_CALLED => format!(
            "no unit was counted any more after {begun}, nor was any {lasted} later, without any delay; but \
             functions were called {:.0} % as often as before: units fail, or their counter stands still",
            calls * 100.0
        ),
        (Some(calls), None) if calls < NONE => format!(
            "the load stopped after {begun}, {then}; or the service stands still: none of these functions is \
             called either"
        ),
        (_, Some(count)) => format!(
            "the service stood still after {begun}, {then}: no unit is done, and {count} {} no answer",
            if count == 1 { "request has" } else { "requests have" }
        ),
        (_, None) => format!("the load stopped after {begun}, {then}"),
    }
}

/// Describes how often the sweep started its load again; `None` if it never did.
pub(crate) fn started_again(load: &StartedLoad) -> Option<String> {
    let times = match load.started_again_ns.len() {
        0 => return None,
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    Some(format!(
        "the load (`{}`) ended by itself and was started again {times}: slices of that time do not count",
        load.command
    ))
}

/// The reason to withhold all verdicts, if the load did not come back.
pub(crate) fn gone(measured: &Measured) -> Option<String> {
    measured
        .load_changes
        .iter()
        .find(|change| change.end_ns.is_none())
        .map(|change| describe(measured, change))
}

/// The reason to withhold all verdicts, if delays may have driven the load away: it went away repeatedly,
/// each time while functions were delayed.
pub(crate) fn driven_away(measured: &Measured) -> Option<String> {
    let changes = &measured.load_changes;
    let is_too_often = changes.len() > MAX_TIMES && changes.iter().all(|change| change.delayed);
    is_too_often.then(|| {
        format!(
            "the load went away {} times, each time while functions were delayed: clients may give up on a \
             service that is slower",
            changes.len()
        )
    })
}
