//! A quantile of latency, and the influence of each chip on it.
//!
//! A chip has too few units for a quantile of its own. But each unit has an influence on the quantile of all
//! units: more units beyond the quantile move it up, and fewer move it down. The more units are near the
//! quantile, the less it moves. The mean of this influence over all units is the quantile itself. So a
//! regression of the influence on doses tells how doses move the quantile (the recentred influence function
//! of Firpo, Fortin and Lemieux 2009).
//!
//! That holds for doses that are small compared with the spread of units. If most units take about as long, a
//! dose moves all of them past the quantile. So units near the quantile count as below it in part: from 1 to
//! 0, evenly, over the distance that doses move units. Then an estimate has all of a dose if all units are
//! near the quantile. Otherwise it has the part that the mean density of units there gives.

use std::collections::BTreeMap;

use speed_bump_abi::Latencies;
use statrs::distribution::{Continuous as _, ContinuousCDF as _, Normal};

/// The units of a chip by latency: buckets of [`Latencies`], and how many units are in each.
pub type Counts = Vec<(u16, u32)>;

/// Units up to this share of the quantile away count as near it, at least.
const NEAR: f64 = 0.05;

/// A quantile of all units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Influence {
    /// The share of units that take this long at most.
    share: f64,
    /// The quantile, in ns.
    at: f64,
    /// The bounds of the latencies near the quantile, in ns.
    low: f64,
    high: f64,
    /// The share of all units below it; units near it count in part.
    below: f64,
    /// The share of all units per ns, near it.
    density: f64,
    /// By what share the density differs between one side of the quantile and the mean of both.
    uneven: f64,
    /// Units that are near it.
    near: f64,
    /// All units.
    units: f64,
}

impl Influence {
    /// The quantile of these chips' units that `share` of them (0 to 1) does not exceed. Doses move units by
    /// up to `near`, as a share of the quantile. `None` if there are too few units.
    pub fn new<'a>(share: f64, near: f64, chips: impl IntoIterator<Item = &'a [(u16, u32)]>) -> Option<Self> {
        let all = All::new(chips);
        let at = all.quantile(share)?;
        let near = near.max(NEAR);
        let width = width(share, all.units).min(share / 2.0).min((1.0 - share) / 2.0);
        let low = all.quantile(share - width)?.min(at * (1.0 - near));
        let high = all.quantile(share + width)?.max(at * (1.0 + near));
        let mut found =
            Self { share, at, low, high, below: 0.0, density: 0.0, uneven: 0.0, near: 0.0, units: all.units };
        for (bucket, count) in (0_u16..).zip(&all.buckets) {
            found.below += count * found.part_below(bucket) / all.units;
            found.near += count * part_within(bucket, low, high);
        }
        found.density = found.near / all.units / (high - low);
        let within = |(bucket, count): (u16, &f64)| count * part_within(bucket, low, at);
        let before: f64 = (0..).zip(&all.buckets).map(within).sum::<f64>() / (at - low);
        found.uneven = (before * (high - low) / found.near - 1.0).abs();
        let is_known = at > 0.0 && found.density > 0.0 && found.density.is_finite();
        is_known.then_some(found)
    }

    /// How much the units of a bucket count as below the quantile, from 0 to 1.
    fn part_below(&self, bucket: u16) -> f64 {
        let (from, to) = bounds(usize::from(bucket));
        ((self.high - (from + to) / 2.0) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The quantile, in ns.
    pub fn quantile(&self) -> f64 {
        self.at
    }

    /// The mean influence of a chip's units, in ns; `None` without any.
    pub fn mean(&self, chip: &[(u16, u32)]) -> Option<f64> {
        let units: f64 = chip.iter().map(|(_, count)| f64::from(*count)).sum();
        let below: f64 =
            chip.iter().map(|(bucket, count)| f64::from(*count) * self.part_below(*bucket)).sum();
        (units > 0.0).then(|| self.at + (self.below - below / units) / self.density)
    }

    /// The relative standard error of the density. The density is an estimate, and it is unknown whether a
    /// dose moves units below the quantile or beyond it.
    pub fn error(&self) -> f64 {
        (1.0 / self.near.max(1.0).sqrt()).hypot(self.uneven / 2.0)
    }

    /// Units on the side of the quantile where fewer are.
    pub fn beyond(&self) -> f64 {
        self.units * self.share.min(1.0 - self.share)
    }
}

/// How far from a quantile, on each side, units count for the estimate of its density, as a share of all
/// units (Bofinger 1975).
fn width(share: f64, units: f64) -> f64 {
    let normal = Normal::standard();
    let at = normal.inverse_cdf(share);
    (4.5 * normal.pdf(at).powi(4) / (2.0 * at * at + 1.0).powi(2) / units.max(1.0)).powf(0.2)
}

/// The units of all chips by latency.
struct All {
    buckets: Vec<f64>,
    units: f64,
}

impl All {
    fn new<'a>(chips: impl IntoIterator<Item = &'a [(u16, u32)]>) -> Self {
        let mut buckets = vec![0.0; Latencies::BUCKETS];
        let mut units = 0.0;
        for (bucket, count) in chips.into_iter().flatten() {
            // A record may have any numbers.
            if let Some(of) = buckets.get_mut(usize::from(*bucket)) {
                *of += f64::from(*count);
                units += f64::from(*count);
            }
        }
        Self { buckets, units }
    }

    /// The latency that this share of units has at most, as if units were spread evenly over a bucket.
    fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.units;
        let mut before = 0.0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            if *count > 0.0 && before + count >= wanted {
                let (from, to) = bounds(bucket);
                return Some(from + (to - from) * ((wanted - before) / count).clamp(0.0, 1.0));
            }
            before += count;
        }
        None
    }
}

/// The part of a bucket that is between these latencies.
fn part_within(bucket: u16, low: f64, high: f64) -> f64 {
    let (from, to) = bounds(usize::from(bucket));
    ((high.min(to) - low.max(from)) / (to - from)).clamp(0.0, 1.0)
}

/// The bounds of a bucket, in ns. The last one has no end: we assume that it ends at twice its beginning.
fn bounds(bucket: usize) -> (f64, f64) {
    let (from, to) = Latencies::bounds_ns(bucket.min(Latencies::BUCKETS - 1));
    (from as f64, if to == u64::MAX { from as f64 * 2.0 } else { to as f64 })
}

/// The buckets of these latencies, in ns.
pub fn counts(latencies: impl IntoIterator<Item = u64>) -> Counts {
    let mut counts = BTreeMap::new();
    for ns in latencies {
        *counts.entry(u16::try_from(Latencies::bucket(ns)).unwrap_or(u16::MAX)).or_insert(0_u32) += 1;
    }
    counts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_mean_influence_is_the_quantile() {
        let chips: Vec<Counts> =
            (0..50).map(|chip| counts((0..20).map(|of| 1_000_000 + (chip * 20 + of) * 3_000))).collect();
        for share in [0.5, 0.9, 0.95, 0.99] {
            let found = Influence::new(share, 0.0, chips.iter().map(Vec::as_slice)).unwrap();
            let truth = 1e6 + share * 3e6;
            assert!((found.quantile() / truth - 1.0).abs() < 0.02, "{found:?} {truth}");
            let means = chips.iter().map(|chip| found.mean(chip).unwrap());
            let mean = means.sum::<f64>() / 50.0;
            assert!((mean / found.quantile() - 1.0).abs() < 1e-6, "{mean} {found:?}");
            // Units are evenly spread over 3 ms, and there is none beyond.
            assert!(share > 0.95 || (found.density * 3e6 - 1.0).abs() < 0.2, "{found:?}");
        }
    }

    /// A delay that is longer than any difference between units shows in full.
    #[test]
    fn units_that_take_about_as_long_move_by_what_they_are_delayed() {
        let chip = |delay: u64| counts((0..100).map(|of| 2_000_000 + of * 1_000 + delay));
        let chips = [chip(0), chip(300_000)];
        for share in [0.3, 0.5, 0.7] {
            let found = Influence::new(share, 0.2, chips.iter().map(Vec::as_slice)).unwrap();
            let moved = found.mean(&chips[1]).unwrap() - found.mean(&chips[0]).unwrap();
            assert!((moved / 3e5 - 1.0).abs() < 0.1, "{moved} {found:?}");
        }
    }

    #[test]
    fn any_counts_of_a_record_are_read() {
        assert_eq!(Influence::new(0.99, 0.2, [&[][..]]), None);
        let odd: Counts = vec![(u16::MAX, 7), (447, u32::MAX), (0, 0)];
        let found = Influence::new(0.5, 0.2, [odd.as_slice()]).unwrap();
        assert!(found.mean(&odd).unwrap().is_finite() && found.error() < 2.0, "{found:?}");
        assert_eq!(found.mean(&[]), None);
    }
}
