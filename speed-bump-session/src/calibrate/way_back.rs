//! Measures how much longer the way back takes after a long spin. During the spin, other code used the
//! caches.

use speed_bump_abi::{Coldness, FunctionEntry, SiteArguments};

use super::{
    Bench, CalibrateError, TRIAL_DELAY,
    line::{GROUPS, Group, line},
    median, spun, timed, touch,
};
use crate::units::Nanos;

/// The delay and the number of calls of each group: enough calls for a median, and few enough for a fast
/// start.
const DELAYS: [(Nanos, usize); GROUPS] =
    [(TRIAL_DELAY, 96), (Nanos(100_000), 64), (Nanos(500_000), 40), (Nanos(2_000_000), 24)];

impl Bench {
    /// Measures the way back. We must already know the cost of the way in. This uses the function that comes
    /// after the stubs' functions and whose counters are still empty.
    pub(super) fn way_back(&mut self) -> Result<Coldness, CalibrateError> {
        let Some((site, stub, unprobed)) = self.everyday() else { return Ok(Coldness::default()) };
        let function = u32::try_from(self.stubs.len()).unwrap_or(u32::MAX);
        self.engine.functions().set_entry(function, FunctionEntry::of(0));
        self.engine.set_site(site, SiteArguments { function, ..SiteArguments::default() })?;
        let mut working_set = Vec::new();
        let mut groups = [Group::default(); GROUPS];
        for (group, (delay, calls)) in groups.iter_mut().zip(DELAYS) {
            self.set_policy(spun(delay))?;
            let mut taken: Vec<u64> = (0..calls)
                .map(|_| {
                    touch(&mut working_set);
                    timed(stub)
                })
                .collect();
            *group = Group {
                told: self.stats(function)?.telltale_ns.into(),
                rest: median(&mut taken).saturating_sub(unprobed + delay.0),
            };
        }
        tracing::debug!("way back: {groups:?}");
        Ok(line(groups))
    }
}
