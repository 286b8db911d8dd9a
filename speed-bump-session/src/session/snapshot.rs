//! The counts of a session at one moment.

use std::{collections::BTreeMap, sync::Arc};

use speed_bump_abi::{FunctionStats, Histogram, times::FunctionTimes};

use super::known::{FunctionId, KnownFunctions};
use crate::{probe::plan::SelectedFunction, stats::median::median, units::Nanos};

/// Counters by function, read while calls went on. Each counter is exact. But if a call happens during the
/// reading, the counters of one function may include it, and the counters of another function may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// When reading began (`CLOCK_MONOTONIC`). The counters include all calls that had returned by then.
    pub at: Nanos,
    /// The functions that the session knew at that time.
    pub known: Arc<KnownFunctions>,
    /// The counts, by [`FunctionId`].
    pub(super) counts: Vec<FunctionStats>,
    /// The histograms of delayed functions, as far as these have one.
    pub(super) histograms: BTreeMap<FunctionId, Histogram>,
    /// The times of functions that the session times.
    pub(super) times: BTreeMap<FunctionId, FunctionTimes>,
}

impl Snapshot {
    /// An empty snapshot, of no session.
    pub fn empty(at: Nanos) -> Self {
        Self {
            at,
            known: Arc::default(),
            counts: Vec::new(),
            histograms: BTreeMap::new(),
            times: BTreeMap::new(),
        }
    }

    /// The known functions and their counts, by number.
    pub fn functions(&self) -> impl Iterator<Item = (&SelectedFunction, &FunctionStats)> {
        self.known.iter().map(|(_, function)| function).zip(&self.counts)
    }

    /// The counts of a function; zeros if the session does not know it.
    pub fn stats_of(&self, function: &SelectedFunction) -> FunctionStats {
        self.known.id(function).map(|id| self.of_id(id)).unwrap_or_default()
    }

    /// The counts of the function with this number; zeros if the session does not know it.
    pub fn of_id(&self, id: FunctionId) -> FunctionStats {
        self.counts.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// The histogram of the delays of the function with this number; `None` if there is none.
    pub fn histogram(&self, id: FunctionId) -> Option<&Histogram> {
        self.histograms.get(&id)
    }

    /// The median delay of the function with this number; `None` if we do not know it.
    pub fn median(&self, id: FunctionId) -> Option<Nanos> {
        let FunctionStats { delayed, requested_ns, .. } = self.of_id(id);
        median(self.histogram(id)?, delayed, Nanos(requested_ns))
    }

    /// The times of the function with this number; `None` if the session does not time it.
    pub fn times_of(&self, id: FunctionId) -> Option<FunctionTimes> {
        self.times.get(&id).copied()
    }

    /// The counts between an earlier snapshot of the same session and this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        // Functions that became known in between had no counts before.
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(FunctionStats::default()));
        let counts = self.counts.iter().zip(before).map(|(stats, before)| stats.since(&before));
        let histograms = self.histograms.iter().map(|(id, histogram)| match earlier.histograms.get(id) {
            Some(earlier) => (*id, histogram.since(earlier)),
            None => (*id, *histogram),
        });
        let times = self.times.iter().map(|(id, times)| {
            let before = earlier.times_of(*id).unwrap_or_default();
            (*id, times.since(&before))
        });
        Self {
            at: self.at,
            known: Arc::clone(&self.known),
            counts: counts.collect(),
            histograms: histograms.collect(),
            times: times.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TargetIndex;

    fn function(name: &str) -> SelectedFunction {
        SelectedFunction { target: TargetIndex(0), name: name.into(), file: "/a".into(), line: None }
    }

    fn snapshot(at: u64, calls: &[(&str, u64)]) -> Snapshot {
        let mut known = KnownFunctions::default();
        for (name, _) in calls {
            known.enter(function(name));
        }
        let stats = |calls| FunctionStats { calls, ..FunctionStats::default() };
        let counts = calls.iter().map(|(_, calls)| stats(*calls)).collect();
        let (histograms, times) = (BTreeMap::new(), BTreeMap::new());
        Snapshot { at: Nanos(at), known: known.into(), counts, histograms, times }
    }

    #[test]
    fn medians_are_of_what_came_between() {
        let id = FunctionId(0);
        let with = |delayed: u64, exact: u64, doubled: u64| {
            let mut of = snapshot(5, &[("f", delayed)]);
            of.counts =
                vec![FunctionStats { delayed, requested_ns: delayed * 1_000, ..FunctionStats::default() }];
            let mut histogram = Histogram::default();
            histogram.words[Histogram::position(1_000, 1_000)] = exact;
            histogram.words[Histogram::position(2_000, 1_000)] = doubled;
            of.histograms.insert(id, histogram);
            of
        };
        let (earlier, later) = (with(10, 10, 0), with(15, 10, 5));
        assert_eq!((earlier.median(id), later.median(id)), (Some(Nanos(1_000)), Some(Nanos(1_000))));
        let median = later.since(&earlier).median(id).unwrap_or_default();
        assert!(median.0.abs_diff(2_000) < 50, "{median}");
        assert_eq!(later.median(FunctionId(1)), None);
    }

    #[test]
    fn times_are_of_what_is_timed() {
        let of = |own_ns| FunctionTimes { own_ns, ..FunctionTimes::default() };
        let mut earlier = snapshot(5, &[("f", 3)]);
        earlier.times.insert(FunctionId(0), of(10));
        let mut later = snapshot(9, &[("f", 10), ("g", 4), ("h", 0)]);
        later.times.extend([(FunctionId(0), of(15)), (FunctionId(1), of(4))]);
        let since = later.since(&earlier);
        let times = [0, 1, 2].map(|id| since.times_of(FunctionId(id)));
        assert_eq!(times, [Some(of(5)), Some(of(4)), None]);
    }

    #[test]
    fn what_came_between_two_snapshots_is_their_difference() {
        let earlier = snapshot(5, &[("f", 3)]);
        let later = snapshot(9, &[("f", 10), ("g", 4)]);
        assert_eq!(later.since(&earlier), snapshot(9, &[("f", 7), ("g", 4)]));
        assert_eq!(later.stats_of(&function("g")).calls, 4);
        assert_eq!(later.of_id(FunctionId(1)).calls, 4);
        assert_eq!(later.stats_of(&function("h")), FunctionStats::default());
        assert_eq!(later.of_id(FunctionId(2)), FunctionStats::default());
        assert_eq!(later.functions().map(|(_, stats)| stats.calls).sum::<u64>(), 14);
    }
}
