//! What a treatment did in one block: the difference to the block's slices without delays.

use std::collections::BTreeMap;

use crate::experiment::record::{By, Slice, Treatment};

/// The difference between slices with a treatment and those without, in one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// The block.
    pub block: u32,
    /// Time per unit that came on top, in ns.
    pub time: f64,
    /// Delay per unit, in ns.
    pub delay: f64,
}

/// Of each block that has slices of both kinds, in their order. Blocks from `until` on are left out.
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
    let mut blocks: BTreeMap<u32, [Means; 2]> = BTreeMap::new();
    for slice in slices.filter(|slice| slice.block < until) {
        let side = match slice.treatment {
            Treatment::Control => 0,
            of if of == treatment => 1,
            _ => continue,
        };
        if let Some(value) = value(slice) {
            blocks.entry(slice.block).or_default()[side].add(slice, value);
        }
    }
    let of_block = |(block, [control, treated]): (u32, [Means; 2])| {
        let ((time_without, delay_without), (time_with, delay_with)) = (control.mean()?, treated.mean()?);
        Some(Contrast { block, time: time_with - time_without, delay: delay_with - delay_without })
    };
    blocks.into_iter().filter_map(of_block).collect()
}

/// Sums over some slices.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    slices: f64,
    time: f64,
    delay: f64,
}

impl Means {
    fn add(&mut self, slice: &Slice, value: f64) {
        self.slices += 1.0;
        self.time += value;
        self.delay += slice.delay_per_unit();
    }

    fn mean(self) -> Option<(f64, f64)> {
        (self.slices > 0.0).then(|| (self.time / self.slices, self.delay / self.slices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{record::PhaseKind, testing};

    #[test]
    fn a_block_is_compared_with_its_own_controls() {
        let function = Treatment::Function { candidate: 0 };
        let slices = [
            // 100 units in a second, 10 ms each; and then slower, as the machine drifts.
            testing::slice(PhaseKind::Confirm, 0, Treatment::Control, 100.0, 0),
            testing::slice(PhaseKind::Confirm, 0, function, 80.0, 200_000_000),
            testing::slice(PhaseKind::Confirm, 1, function, 40.0, 200_000_000),
            testing::slice(PhaseKind::Confirm, 1, Treatment::Control, 50.0, 0),
            testing::slice(PhaseKind::Confirm, 1, Treatment::Control, 50.0, 0),
            // Of these, there is nothing to compare with.
            testing::slice(PhaseKind::Confirm, 2, Treatment::Placebo, 50.0, 0),
            testing::slice(PhaseKind::Confirm, 3, Treatment::Control, 50.0, 0),
        ];
        let found = contrasts(slices.iter(), function, u32::MAX, By::Throughput);
        let rounded: Vec<_> = found.iter().map(|of| (of.block, of.time.round(), of.delay.round())).collect();
        assert_eq!(rounded, [(0, 2_500_000.0, 2_500_000.0), (1, 5_000_000.0, 5_000_000.0)]);
        assert_eq!(contrasts(slices.iter(), function, 1, By::Throughput).len(), 1);
    }
}
