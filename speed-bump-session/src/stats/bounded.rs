//! Reports the delays that a session's bound has left out.

use super::report::TargetReport;
use crate::policy::DelayBound;

/// A warning about calls whose delays the bound left out; `None` if there are none. `bound` is the present
/// bound.
pub(crate) fn warning(targets: &[TargetReport], bound: Option<DelayBound>) -> Option<String> {
    let sum = |of: fn(&TargetReport) -> u64| {
        targets.iter().fold(0_u64, |sum, target| sum.saturating_add(of(target)))
    };
    let bounded = sum(|target| target.bounded);
    let bound = bound.filter(|_| bounded > 0)?;
    let all = bounded.saturating_add(sum(|target| target.delayed));
    Some(format!(
        "{bounded} of {all} delays were left out: a thread is delayed for {:.0} % of its time at most, and \
         by {} at a time; ask for shorter delays, or raise the bound of the session",
        100.0 * bound.share(),
        bound.longest()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use speed_bump_abi::FunctionStats;

    use super::*;
    use crate::{
        engine::EngineKind,
        stats::report::FunctionReport,
        targets::{ParsedTargets, TargetIndex},
        units::Nanos,
    };

    fn target(delayed: u64, bounded: u64) -> TargetReport {
        let targets = ParsedTargets::parse("targets", b"*:f\n", true).unwrap().decide(|_| false);
        let stats = FunctionStats { calls: delayed + bounded, delayed, bounded, ..FunctionStats::default() };
        let function = FunctionReport::new("f".to_owned(), "/x".into(), None, stats);
        let target = targets.get(TargetIndex(0)).unwrap();
        TargetReport::new(target, EngineKind::Helper, Nanos(10), vec![function])
    }

    #[test]
    fn what_a_bound_left_out_is_told_with_the_bound() {
        let bound = DelayBound::new(0.25, Duration::from_millis(100)).ok();
        assert_eq!(warning(&[target(7, 0)], bound), None);
        assert_eq!(warning(&[target(7, 1)], None), None);
        let text = warning(&[target(7, 1), target(2, 10)], bound).unwrap();
        assert!(text.starts_with("11 of 20 delays were left out: a thread is delayed for 25 %"), "{text}");
        assert!(text.contains("by 25ms at a time"), "{text}");
    }
}
