//! What a trap costs more when it finds the caches cold: after its thread slept, or ran much other code.
//!
//! On this machine a trap after 5 ms of sleep takes seven times as long as a warm one, and what the caller loses is
//! to be the same. The BPF program cannot see when the trap began, but its own look-ups slow down in proportion (the
//! correlation over calls after pauses of 0 to 5 ms is 0.93 to 0.96), so the factor between the two is measured.

use std::{
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::{Coldness, SiteArguments};

use super::{Bench, CalibrateError, stubs::Stub, touch};
use crate::{probe::site::SiteKind, units::Nanos};

/// The stub that is measured: of an everyday kind.
const KIND: SiteKind = SiteKind::Push;
/// What comes before a call, in turn: nothing but the touching of memory, or a sleep as well. The longest finds
/// much evicted, and start-up stays fast.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_micros(150), Duration::from_micros(600)];
/// Calls after each pause.
const CALLS: usize = 48;
/// Look-ups that take longer were interrupted.
const LONGEST_LOOKUPS_NS: u32 = 1_000;
/// Look-ups that are slower by less are within what the clock tells.
const LEAST_SLOWER_NS: u64 = 20;
/// The greatest factor that is believed.
const MOST: u32 = 24 * Coldness::ONE;

/// One call, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// What the program's look-ups took.
    lookups: u64,
    /// What the call took but for that.
    rest: u64,
}

impl Bench {
    /// Measures the machine's [`Coldness`]. The stubs' functions have target 0.
    pub(super) fn coldness(&mut self) -> Result<Coldness, CalibrateError> {
        let found = (0_u32..).zip(&self.stubs).find(|(_, stub)| stub.kind == KIND);
        let Some((site, stub)) = found.map(|(site, stub)| (site, *stub)) else {
            return Ok(Coldness::default());
        };
        // So that nothing is left to spin, and what the look-ups took is what is reported as delivered.
        self.engine.set_policy(0, Nanos(1), 1)?;
        self.engine.set_coldness(Coldness {
            factor: Coldness::ONE,
            limit_ns: u32::MAX,
            ..Coldness::default()
        })?;
        self.engine.set_site(site, SiteArguments { function: site, ..SiteArguments::default() })?;
        let mut samples = Vec::with_capacity(PAUSES.len() * CALLS);
        for _ in 0..CALLS {
            for pause in PAUSES {
                samples.push(self.sample(site, stub, pause)?);
            }
        }
        Ok(coldness(samples))
    }

    fn sample(&self, site: u32, stub: Stub, pause: Duration) -> Result<Sample, CalibrateError> {
        let mut working_set = Vec::new();
        let before = self.engine.stats(site)?;
        touch(&mut working_set);
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        // The clock is warm when it counts: a caller without the tool would find it cold as well.
        std::hint::black_box(Instant::now());
        let start = Instant::now();
        stub.call();
        let taken = Nanos::from(start.elapsed()).0;
        let lookups = self.engine.stats(site)?.delivered_ns.saturating_sub(before.delivered_ns);
        Ok(Sample { lookups, rest: taken.saturating_sub(lookups) })
    }
}

/// The line through the warm and the cold third of the samples, by their medians, which no outlier moves.
fn coldness(mut samples: Vec<Sample>) -> Coldness {
    samples.retain(|sample| sample.lookups <= u64::from(LONGEST_LOOKUPS_NS));
    samples.sort_unstable_by_key(|sample| sample.lookups);
    let third = samples.len() / 3;
    let middle = |samples: &[Sample]| {
        let median = |of: &dyn Fn(&Sample) -> u64| {
            let mut values: Vec<_> = samples.iter().map(of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Sample { lookups: median(&|sample| sample.lookups), rest: median(&|sample| sample.rest) }
    };
    let warm = middle(samples.get(..third).unwrap_or_default());
    let cold = middle(samples.get(samples.len() - third..).unwrap_or_default());

    let warm_ns = u32::try_from(warm.lookups).unwrap_or(LONGEST_LOOKUPS_NS);
    let slower = cold.lookups - warm.lookups;
    if slower < LEAST_SLOWER_NS {
        return Coldness { warm_ns, ..Coldness::default() };
    }
    let more = cold.rest.saturating_sub(warm.rest);
    let factor =
        u32::try_from(more.saturating_mul(u64::from(Coldness::ONE)) / slower).unwrap_or(u32::MAX).min(MOST);
    let limit_ns = (LONGEST_LOOKUPS_NS - warm_ns).saturating_mul(factor) / Coldness::ONE;
    Coldness { warm_ns, factor, limit_ns, reserved: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many warm as cold calls, and some between.
    fn samples(warm: (u64, u64), cold: (u64, u64)) -> Vec<Sample> {
        let between = (u64::midpoint(warm.0, cold.0), u64::midpoint(warm.1, cold.1));
        let of = |(lookups, rest)| Sample { lookups, rest };
        [warm, cold, between].into_iter().cycle().take(30).map(of).collect()
    }

    #[test]
    fn the_factor_is_what_the_trap_loses_for_what_the_lookups_lose() {
        let expected = Coldness { warm_ns: 100, factor: 10 * Coldness::ONE, limit_ns: 9_000, reserved: 0 };
        assert_eq!(coldness(samples((100, 1_000), (300, 3_000))), expected);
    }

    #[test]
    fn interrupted_calls_do_not_count() {
        let mut samples = samples((100, 1_000), (300, 3_000));
        let clean = coldness(samples.clone());
        samples.extend([Sample { lookups: 90_000, rest: 1_000 }; 15]);
        assert_eq!(coldness(samples), clean);
    }

    #[test]
    fn a_machine_without_cold_traps_corrects_nothing() {
        assert_eq!(coldness(samples((100, 1_000), (110, 9_000))).factor, 0);
        assert_eq!(coldness(samples((100, 1_000), (300, 900))).limit_ns, 0);
        assert_eq!(coldness(Vec::new()), Coldness::default());
    }

    #[test]
    fn the_correction_is_bounded_whatever_was_measured() {
        let wild = coldness(samples((100, 0), (120, u64::MAX / 2)));
        assert_eq!(wild.factor, MOST);
        assert_eq!(wild.limit_ns, 900 * 24);
    }
}
