//! What the way back costs more after a long spin, which leaves the caches to others.

use std::time::Instant;

use speed_bump_abi::{Coldness, SiteArguments};

use super::{
    Bench, CalibrateError, TRIAL_DELAY,
    line::{GROUPS, Group, line},
    touch,
};
use crate::{probe::site::SiteKind, units::Nanos};

/// The stub that is measured: of an everyday kind.
const KIND: SiteKind = SiteKind::Push;
/// The delay of each group, and how many calls it has: enough for a median, and start-up stays fast.
const DELAYS: [(Nanos, usize); GROUPS] =
    [(TRIAL_DELAY, 96), (Nanos(100_000), 64), (Nanos(500_000), 40), (Nanos(2_000_000), 24)];

impl Bench {
    /// Measures the way back, with the way in known. The function after the stubs' own is used, which has nothing in its
    /// counters yet.
    pub(super) fn way_back(&mut self) -> Result<Coldness, CalibrateError> {
        let mut found = (0_u32..).zip(self.stubs.iter().zip(&self.unprobed));
        let found = found.find(|(_, (stub, _))| stub.kind == KIND);
        let Some((site, stub, unprobed)) = found.map(|(site, (stub, unprobed))| (site, *stub, *unprobed))
        else {
            return Ok(Coldness::default());
        };
        let function = u32::try_from(self.stubs.len()).unwrap_or(u32::MAX);
        self.engine.set_function(function, 0)?;
        self.engine.set_site(site, SiteArguments { function, ..SiteArguments::default() })?;
        let mut working_set = Vec::new();
        let mut groups = [Group::default(); GROUPS];
        for (group, (delay, calls)) in groups.iter_mut().zip(DELAYS) {
            self.engine.set_policy(0, delay, 1)?;
            let mut taken: Vec<u64> = (0..calls)
                .map(|_| {
                    touch(&mut working_set);
                    let start = Instant::now();
                    stub.call();
                    Nanos::from(start.elapsed()).0
                })
                .collect();
            taken.sort_unstable();
            let median = taken.get(calls / 2).copied().unwrap_or_default();
            *group = Group {
                told: self.engine.stats(function)?.telltale_ns,
                rest: median.saturating_sub(unprobed + delay.0),
            };
        }
        tracing::debug!("way back: {groups:?}");
        Ok(line(groups))
    }
}
