//! The time that calls lose to a peer.

use anyhow::Result;
use speed_bump_testing::Service;

use super::{
    dose::{self, Dose},
    times::{Sorted, Times},
};
use crate::bench::quantile;

/// What the program measured in a slice.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    /// Calls one right after the other.
    pub(super) at_once: Times,
    /// Calls after a sleep each, alternating with calls of a function that no peer slows; none if they do not
    /// matter.
    pub(super) slept: Option<Times>,
}

impl Slice {
    /// Measures a slice that begins now.
    pub(super) fn measure(service: &mut Service, calls: usize, slept_calls: usize) -> Result<Self> {
        let mut ask = |calls, sleep_us| Times::read(&service.ask(&format!("measure {calls} {sleep_us}"))?);
        // The first run of any code is slow, for every peer.
        ask(dose::WARM_UP.min(calls), 0)?;
        let at_once = ask(calls, 0)?;
        let slept = (slept_calls > 0).then(|| ask(slept_calls, dose::SLEEP_US)).transpose()?;
        Ok(Self { at_once, slept })
    }
}

/// The time of calls without a peer, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) called: f64,
    pub(super) next: f64,
    pub(super) slept: f64,
}

impl Base {
    /// From slices without a peer.
    pub(super) fn from_slices(slices: &[Slice]) -> Self {
        let quick = |time: fn(&Slice) -> f64| quantile(slices.iter().map(time).collect(), QUICK);
        Self {
            called: quick(|slice| slice.at_once.called.middle()),
            next: quick(|slice| slice.at_once.other.middle()),
            slept: slept(slices.iter(), |times| &times.called),
        }
    }

    /// What was lost with each dose.
    pub(super) fn all_lost(&self, slices: &[(Dose, Slice)]) -> Vec<(Dose, Lost)> {
        let lost = |dose| {
            let with: Vec<_> = slices.iter().filter(|(of, _)| *of == dose).map(|(_, slice)| slice).collect();
            (!with.is_empty()).then(|| (dose, self.lost(&with)))
        };
        [Dose::Closed].into_iter().chain(Dose::OPEN).filter_map(lost).collect()
    }

    fn lost(&self, slices: &[&Slice]) -> Lost {
        let over = |time: fn(&Slice) -> f64, share| {
            quantile(slices.iter().map(|slice| time(slice)).collect(), share)
        };
        Lost {
            call: over(|slice| slice.at_once.called.middle(), QUICK) - self.called,
            call_99: over(|slice| slice.at_once.called.at(0.99), 0.5) - self.called,
            next: over(|slice| slice.at_once.other.middle(), QUICK) - self.next,
            slept: slept(slices.iter().copied(), |times| &times.called)
                - slept(slices.iter().copied(), |times| &times.other),
        }
    }
}

/// The time of these calls after a sleep, in ns: from all slices together, as each has only a few.
fn slept<'a>(slices: impl Iterator<Item = &'a Slice>, calls: fn(&Times) -> &Sorted) -> f64 {
    Sorted::all(slices.filter_map(|slice| slice.slept.as_ref().map(calls))).middle()
}

/// The time that calls lost, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lost {
    /// What a call of the function lost.
    pub(super) call: f64,
    /// What a call of the function lost at the 99th percentile, in the median slice.
    pub(super) call_99: f64,
    /// What the call of another function right after it lost.
    pub(super) next: f64,
    /// What a call after a sleep lost, compared with a call of a function that no peer slows.
    pub(super) slept: f64,
}

/// The share of slices that count as undisturbed.
const QUICK: f64 = 0.25;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn slice(called: f64) -> Slice {
        let times = |called: f64| {
            Times::read(&[json!({"event":"times","called":[called],"other":[called / 10.0]})]).unwrap()
        };
        Slice { at_once: times(called), slept: Some(times(5.0 * called)) }
    }

    #[test]
    fn slow_slices_do_not_count_on_either_side() {
        let base = Base::from_slices(&[slice(100.0), slice(300.0), slice(100.0), slice(300.0)]);
        assert_eq!((base.called, base.next, base.slept), (100.0, 10.0, 1_000.0));
        let dose = Dose::Each(1_000);
        let slices = [slice(1_100.0), slice(2_000.0), slice(1_100.0), slice(1_100.0)];
        let lost = base.all_lost(&slices.map(|slice| (dose, slice)));
        assert_eq!(lost, [(dose, Lost { call: 1_000.0, call_99: 1_000.0, next: 100.0, slept: 4_950.0 })]);
    }
}
