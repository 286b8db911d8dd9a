//! Services that wait for processors: a spin takes time from other threads there, so that a delay shows a
//! little even if it is hidden otherwise.

use super::{factor::Factor, verdict::Verdict};
use crate::record::{Around, Measured, ThreadTime};

/// Threads that wait for a smaller share of the time are hardly slowed down.
const MIN_WAIT: f64 = 0.05;

/// The sensitivity that scarce processors may explain; `None` if the service hardly waits for any.
///
/// After a delay, a thread may wait for a processor as it does after its other work. Measured on planted
/// services beside as many busy loops as processors: threads waited for 0.42 to 0.44 of the time that they
/// wanted a processor, and hidden delays showed 0.12 to 0.36. Only other programs' part counts: if threads of
/// the service wait for each other, a function that takes less time helps.
pub(super) fn explained(measured: &Measured) -> Option<f64> {
    let around = measured.around.as_ref()?;
    let wait = around.processor_wait.filter(|wait| *wait >= MIN_WAIT)?;
    Some(wait * others_part(around, &measured.threads))
}

/// Other programs' part of what threads of the service waited for; all of it where that is unknown.
///
/// A thread never waits for itself. So this leaves its own time out of the time that processors were busy. If
/// only one thread of the service is busy, it waits for other programs alone.
fn others_part(around: &Around, threads: &[ThreadTime]) -> f64 {
    let Some((others, busy)) = around.others.zip(around.processors_busy) else { return 1.0 };
    if others <= 0.0 {
        return 0.0;
    }
    let service = (busy - others).max(0.0);
    let sum = |of: fn(&ThreadTime) -> f64| threads.iter().map(of).sum::<f64>();
    let (running, waiting) = (sum(|of| of.running), sum(|of| of.waiting));
    let part_without = |own_share: f64| others / (others + service * (1.0 - own_share));
    let part = if running > 0.0 && waiting > 0.0 {
        threads.iter().map(|of| part_without(of.running / running) * of.waiting / waiting).sum()
    } else {
        part_without(0.0)
    };
    if part.is_finite() { part.clamp(0.0, 1.0) } else { 1.0 }
}

/// Withholds "matters" for functions whose sensitivity may come from scarce processors alone.
pub(super) fn withhold(measured: &Measured, factors: &mut [Factor]) {
    let Some(explained) = explained(measured) else { return };
    let wait = measured.around.and_then(|around| around.processor_wait).unwrap_or_default();
    for factor in factors.iter_mut().filter(|of| of.verdict == Verdict::Matters) {
        if factor.low.is_none_or(|low| low <= explained) {
            factor.verdict = Verdict::Undecided;
            factor.reason = Some(format!(
                "its sensitivity may come from a lack of processors: threads of the service waited for one \
                 for {:.0} % of the time that they wanted one, {:.0} % of that for other programs, and that \
                 alone makes up to {explained:.2} of any delay show",
                wait * 100.0,
                explained / wait * 100.0
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{simulated::Function, testing, units::Pid};

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let around = Around { processors_busy: Some(1.0), others: Some(0.5), ..Around::default() };
        let thread =
            |running, waiting| ThreadTime { thread: Pid::FIRST, name: String::new(), running, waiting };
        let part = |threads: &[ThreadTime]| (others_part(&around, threads) * 1_000.0).round();
        assert_eq!(part(&[]), 500.0);
        assert_eq!(part(&[thread(0.9, 0.5)]), 1_000.0);
        // Each of two waits for the other one as well.
        assert_eq!(part(&[thread(0.4, 0.5), thread(0.4, 0.5)]), 667.0);
        // Only the second waits, and the first has most of the service's time.
        assert_eq!(part(&[thread(0.8, 0.0), thread(0.2, 0.5)]), 556.0);
        assert_eq!(part(&[thread(0.0, 0.0)]), 500.0);
        let alone = Around { others: Some(0.0), ..around };
        assert_eq!(others_part(&alone, &[thread(0.9, 0.5)]), 0.0);
    }

    #[test]
    fn what_other_programs_take_explains_some_of_each_delay() {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let mut measured = testing::measured(&[("f", function, 300)]);
        let mut explained = |processor_wait, others| {
            let busy = Some(0.9);
            measured.around =
                Some(Around { processor_wait, others, processors_busy: busy, ..Around::default() });
            explained(&measured).map(|of| (of * 1_000.0).round())
        };
        assert_eq!(explained(Some(0.4), Some(0.9)), Some(400.0));
        assert_eq!(explained(Some(0.4), Some(0.45)), Some(200.0));
        assert_eq!(explained(Some(0.4), Some(0.0)), Some(0.0));
        assert_eq!(explained(Some(0.4), None), Some(400.0));
        assert_eq!(explained(Some(0.04), Some(0.9)), None);
        assert_eq!(explained(None, Some(0.9)), None);
    }
}
