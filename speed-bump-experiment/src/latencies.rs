//! Histogram of latencies, and its quantiles.

use std::sync::Arc;

use speed_bump_abi::Latencies;

use crate::{record::Quantiles, units::Nanos};

/// Number of requests by latency, since counting began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyCounts(Arc<Latencies>);

impl LatencyCounts {
    /// These counts.
    pub fn new(counts: &Latencies) -> Self {
        Self(Arc::new(*counts))
    }

    /// The requests since an earlier reading of the same counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(Arc::new(between(&earlier.0, &self.0)))
    }

    /// Buckets with requests, and how many are in each.
    pub fn buckets(&self) -> Vec<(u16, u32)> {
        let counted = (0..).zip(&self.0.buckets).filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (bucket, u32::try_from(*count).unwrap_or(u32::MAX))).collect()
    }

    /// As [`quantile`].
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        quantile(&self.0, share)
    }

    /// The reported quantiles; `None` without requests.
    pub fn quantiles(&self) -> Option<Quantiles> {
        Some(Quantiles { p50_ns: self.quantile(0.5)?, p99_ns: self.quantile(0.99)? })
    }
}

/// The requests between two readings of the same counts.
pub fn between(earlier: &Latencies, later: &Latencies) -> Latencies {
    let mut counts = *later;
    for (bucket, earlier) in counts.buckets.iter_mut().zip(&earlier.buckets) {
        *bucket = bucket.saturating_sub(*earlier);
    }
    counts
}

/// The latency that this share of the requests (0 to 1) had at most, exact to 3.1 % between 1 us and 133 s;
/// `None` without requests.
pub fn quantile(counts: &Latencies, share: f64) -> Option<Nanos> {
    let total = counts.buckets.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    // The position of the request, counted from 1.
    let wanted = ((total as f64 * share.clamp(0.0, 1.0)).ceil() as u64).clamp(1, total.max(1));
    let mut before = 0_u64;
    let bucket = counts.buckets.iter().position(|count| {
        before = before.saturating_add(*count);
        before >= wanted
    })?;
    let (from, to) = Latencies::bounds_ns(bucket);
    Some(Nanos(if to == u64::MAX { from } else { from + (to - from) / 2 }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn counts(latencies_ns: &[u64]) -> LatencyCounts {
        let mut counts = Latencies::default();
        latencies_ns.iter().for_each(|ns| counts.buckets[Latencies::bucket(*ns)] += 1);
        LatencyCounts::new(&counts)
    }

    #[test]
    fn quantiles_are_of_the_requests_in_between() {
        let early = counts(&[1_000_000_000; 50]);
        let late = counts(&[&[1_000_000_000; 50][..], &[1_000_000; 98], &[80_000_000; 2]].concat());
        let found = late.since(&early).quantiles().unwrap();
        assert!(found.p50_ns.0.abs_diff(1_000_000) < 32_000, "{found:?}");
        assert!(found.p99_ns.0.abs_diff(80_000_000) < 2_500_000, "{found:?}");
        assert_eq!(late.since(&late).quantiles(), None);
    }
}
