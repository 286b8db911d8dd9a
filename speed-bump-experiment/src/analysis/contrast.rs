//! What a treatment did in one block: the difference to the nearest slice without delays.
//!
//! Machines get slower and faster by themselves, for seconds at a time, so that a slice is compared with the
//! nearest one without delays.

use std::collections::BTreeMap;

use crate::record::{By, Slice, Treatment};

/// The difference between slices with a treatment and those without, in one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// Number of the block, from 0 in each phase.
    pub block: u32,
    /// Time per unit that came on top, in ns.
    pub time: f64,
    /// Delay per unit, in ns.
    pub delay: f64,
}

/// Of each block that has slices of this treatment, in their order. Blocks from `until` on are left out. All
/// slices are to be of one phase, in their order.
pub fn contrasts<'a>(
    slices: impl Iterator<Item = &'a Slice>,
    treatment: Treatment,
    until: u32,
    by: By,
) -> Vec<Contrast> {
    contrasts_of(slices, treatment, until, |slice| Some(slice.time_per_unit(by)))
}

/// The same of any number of a slice, in place of the time per unit. Slices without it are left out.
pub fn contrasts_of<'a>(
    slices: impl Iterator<Item = &'a Slice>,
    treatment: Treatment,
    until: u32,
    value: impl Fn(&Slice) -> Option<f64>,
) -> Vec<Contrast> {
    let slices: Vec<&Slice> = slices.filter(|slice| slice.block < until).collect();
    let without = Without::of(slices.iter().copied(), &value);
    let mut blocks: BTreeMap<u32, Sums> = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| slice.treatment == treatment) {
        // One against one: whatever the distribution of noise is, their difference is as likely to be above
        // zero as below, which is what ranks need.
        let usual = without.nearest(slice);
        let delay = slice.delay_per_unit();
        // What a record has that nobody measured is no number to go by.
        let is_number = |(value, usual): &(f64, f64)| (value - usual).is_finite() && delay.is_finite();
        if let Some((value, usual)) = value(slice).zip(usual).filter(is_number) {
            let sums = blocks.entry(slice.block).or_default();
            sums.slices += 1.0;
            sums.time += value - usual;
            sums.delay += delay;
        }
    }
    let of_block =
        |(block, of): (u32, Sums)| Contrast { block, time: of.time / of.slices, delay: of.delay / of.slices };
    blocks.into_iter().map(of_block).collect()
}

/// Sums over some slices.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    slices: f64,
    time: f64,
    delay: f64,
}

/// What slices without delays have, by when they were.
pub(crate) struct Without(Vec<(f64, f64)>);

impl Without {
    /// Of slices of one phase, in their order.
    pub(crate) fn of<'a>(
        slices: impl Iterator<Item = &'a Slice>,
        value: impl Fn(&Slice) -> Option<f64>,
    ) -> Self {
        let controls = slices.filter(|slice| slice.treatment == Treatment::Control);
        Self(controls.filter_map(|slice| Some((middle(slice), value(slice)?))).collect())
    }

    /// What the one nearest to a slice has; `None` without any.
    fn nearest(&self, slice: &Slice) -> Option<f64> {
        let time = middle(slice);
        let near = self.around(time).into_iter().flatten();
        near.min_by(|a, b| (a.0 - time).abs().total_cmp(&(b.0 - time).abs())).map(|(_, value)| value)
    }

    /// What a slice would have had without its delays; `None` where there is nothing to compare with.
    pub(crate) fn at(&self, slice: &Slice) -> Option<f64> {
        let time = middle(slice);
        match self.around(time) {
            [Some((then, before)), Some((at, after))] => {
                let share = (time - then) / (at - then).max(1.0);
                Some(before + share * (after - before))
            }
            [Some((_, value)), None] | [None, Some((_, value))] => Some(value),
            [None, None] => None,
        }
    }

    /// The one before a time, and the one after it.
    fn around(&self, time: f64) -> [Option<(f64, f64)>; 2] {
        let next = self.0.partition_point(|(at, _)| *at < time);
        [next.checked_sub(1), Some(next)].map(|index| self.0.get(index?).copied())
    }
}

/// The middle of a slice.
fn middle(slice: &Slice) -> f64 {
    slice.start_ns.0 as f64 + slice.span() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::PhaseKind, testing};

    #[test]
    fn a_slice_is_compared_with_those_without_delays_next_to_it() {
        let function = Treatment::Function { candidate: 0 };
        let slice = |second, block, treatment, units, delivered| {
            testing::at(second, testing::slice(PhaseKind::Confirm, block, treatment, units, delivered))
        };
        let slices = [
            // 100 units in a second, 10 ms each; and then slower, as the machine drifts.
            slice(0, 0, Treatment::Control, 100.0, 0),
            slice(1, 0, function, 80.0, 200_000_000),
            slice(2, 0, Treatment::Control, 100.0, 0),
            slice(6, 1, function, 40.0, 200_000_000),
            slice(8, 1, Treatment::Control, 50.0, 0),
            slice(12, 2, Treatment::Control, 25.0, 0),
            slice(13, 2, Treatment::Placebo, 50.0, 0),
            // After the last one.
            slice(14, 3, function, 25.0, 0),
        ];
        let found = contrasts(slices.iter(), function, u32::MAX, By::Throughput);
        let rounded: Vec<_> = found.iter().map(|of| (of.block, of.time.round(), of.delay.round())).collect();
        assert_eq!(rounded, [(0, 2_500_000.0, 2_500_000.0), (1, 5_000_000.0, 5_000_000.0), (3, 0.0, 0.0)]);
        let without = Without::of(slices.iter(), |slice| Some(slice.time_per_unit(By::Throughput)));
        // At 6 s between 2 s with 10 ms, and 8 s with 20 ms.
        assert_eq!(without.at(&slices[3]).map(f64::round), Some(16_666_667.0));
        assert_eq!(contrasts(slices.iter(), function, 1, By::Throughput).len(), 1);
        let alone = contrasts(slices[1..2].iter(), function, u32::MAX, By::Throughput);
        assert_eq!(alone, [], "there is nothing to compare with");
    }
}
