//! Requests that fail while functions are delayed: then counting requests does not measure work, and the
//! service cannot bear more delay.

use statrs::distribution::{DiscreteCDF as _, Hypergeometric};

use crate::record::{Mark, Measured, Slice};

/// A slice is failing if the share of its units that failed is larger than twice the usual share plus this.
const MARGIN: f64 = 0.02;
/// If chance distributes failures like this with a smaller probability, delays are the cause.
const CHANCE: f64 = 0.0005;
/// Fewer failed requests than this are not reported.
const MIN_FAILED: f64 = 3.0;

/// The reason to withhold all verdicts, if more requests failed with delays than without, and not by chance.
pub(crate) fn failed(measured: &Measured) -> Option<String> {
    let (with, without): (Vec<&Slice>, Vec<&Slice>) =
        known(measured).into_iter().partition(|slice| !slice.doses.is_empty());
    let is_no_chance = chance(&with, &without) < CHANCE;
    is_no_chance.then(|| {
        format!(
            "{}: failed requests are not the work that is measured. Take smaller doses (--max-slowdown)",
            describe("functions", &with, &without)
        )
    })
}

/// The note beside the verdicts, if a larger share of requests failed with delays than without.
pub(super) fn more_failed(measured: &Measured) -> Option<String> {
    let (with, without): (Vec<&Slice>, Vec<&Slice>) =
        known(measured).into_iter().partition(|slice| !slice.doses.is_empty());
    let share = |slices: &[&Slice]| {
        let sum = |of: fn(&Slice) -> f64| slices.iter().map(|slice| of(slice)).sum::<f64>();
        sum(failures) / sum(|slice| slice.units).max(1.0)
    };
    let is_more =
        share(&with) > 2.0 * share(&without) && with.iter().map(|of| failures(of)).sum::<f64>() >= MIN_FAILED;
    is_more.then(|| describe("functions", &with, &without))
}

/// Slices under the load whose number of failed requests is known.
fn known(measured: &Measured) -> Vec<&Slice> {
    let is_known = |slice: &&Slice| slice.failed.is_some() && !slice.marks.contains(&Mark::Load);
    measured.slices.iter().filter(is_known).collect()
}

fn failures(slice: &Slice) -> f64 {
    slice.failed.unwrap_or_default()
}

/// The probability that chance puts at least as many failing slices among those with delays (Fisher's exact
/// test).
fn chance(with: &[&Slice], without: &[&Slice]) -> f64 {
    let sum = |of: fn(&Slice) -> f64| without.iter().map(|slice| of(slice)).sum::<f64>();
    let usual = sum(failures) / sum(|slice| slice.units).max(1.0);
    let is_failing = |slice: &&&Slice| failures(slice) > (2.0 * usual + MARGIN) * slice.units;
    let failing = |slices: &[&Slice]| slices.iter().filter(is_failing).count() as u64;
    let seen = failing(with);
    let all = (with.len() + without.len()) as u64;
    let drawn = Hypergeometric::new(all, seen + failing(without), with.len() as u64);
    match (drawn, seen) {
        (Ok(drawn), 1..) => drawn.sf(seen - 1),
        _ => 1.0,
    }
}

fn describe(name: &str, with: &[&Slice], without: &[&Slice]) -> String {
    let of = |slices: &[&Slice]| {
        let failed: f64 = slices.iter().map(|slice| failures(slice)).sum();
        let units: f64 = slices.iter().map(|slice| slice.units).sum();
        format!("{failed:.0} of {units:.0}")
    };
    format!(
        "requests failed while {name} had delays: {} answers were HTTP 5xx, 408 or 429, and without \
         delays {} were",
        of(with),
        of(without)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        record::{PhaseKind, Treatment},
        simulated::Function,
        testing::{measured, slice},
    };

    const FUNCTION: Treatment = Treatment::Function { candidate: 0 };

    /// A record of a test: failed units of each slice, of 50, with delays and without.
    fn record(with: &[f64], without: &[f64]) -> Measured {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let mut measured = measured(&[("score", function, 100)]);
        let slices = |failed: &[f64], treatment: Treatment, delay: u64| {
            let of = |(block, failed): (u32, &f64)| Slice {
                failed: Some(*failed),
                ..slice(PhaseKind::Test, block, treatment, 50.0, delay)
            };
            (0..).zip(failed).map(of).collect::<Vec<_>>()
        };
        measured.slices.extend(slices(with, FUNCTION, 5_000_000));
        measured.slices.extend(slices(without, Treatment::Control, 0));
        measured
    }

    #[test]
    fn failures_that_come_with_delays_are_reported() {
        let said = failed(&record(&[10.0; 8], &[0.0; 8])).unwrap();
        assert!(
            said.starts_with("requests failed while functions had delays: 80 of 400 answers were"),
            "{said}"
        );
        assert!(said.contains("without delays 0 of 400 were"), "{said}");
        // More than twice the usual share.
        assert!(failed(&record(&[10.0; 8], &[2.0; 8])).is_some());
    }

    #[test]
    fn failures_that_come_anyway_are_not_blamed_on_delays() {
        assert_eq!(failed(&record(&[10.0; 20], &[10.0; 20])), None);
        assert_eq!(failed(&record(&[0.0; 20], &[10.0; 20])), None);
        assert_eq!(failed(&record(&[0.0; 20], &[0.0; 20])), None);
        // A few slices may be chance, however many requests fail in each. They are reported.
        assert_eq!(failed(&record(&[50.0; 5], &[0.0; 5])), None);
        let told = more_failed(&record(&[50.0; 5], &[0.0; 5])).unwrap();
        assert!(told.contains("250 of 250 answers") && told.contains("0 of 250 were"), "{told}");
        assert_eq!(more_failed(&record(&[10.0; 20], &[10.0; 20])), None);
        let mut one_burst = [0.0; 20];
        one_burst[3..6].fill(50.0);
        assert_eq!(failed(&record(&one_burst, &[0.0; 20])), None);
        assert_eq!(failed(&record(&[0.9; 20], &[0.0; 20])), None, "less than the margin");
    }

    #[test]
    fn slices_with_unknown_failures_or_another_load_do_not_count() {
        let mut measured = record(&[10.0; 8], &[0.0; 8]);
        measured.slices.iter_mut().for_each(|slice| slice.failed = None);
        assert_eq!(failed(&measured), None);
        let mut measured = record(&[10.0; 8], &[0.0; 8]);
        measured.slices.iter_mut().for_each(|slice| slice.marks.push(Mark::Load));
        assert_eq!(failed(&measured), None, "the load was another one");
    }
}
