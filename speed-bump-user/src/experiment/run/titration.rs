//! Everything at once, with delays that double until the service reacts: how much delay it takes for that,
//! or that there is none.

use super::{Runner, Stop};
use crate::{
    experiment::{
        analysis::estimate::LEAST_BLOCKS,
        record::{PhaseKind, Treatment},
        schedule::call_dose,
    },
    units::Nanos,
};

/// The service reacts when a unit takes so much longer.
const REACTS: f64 = 0.05;
/// And that by so many standard errors.
const BELIEVED: f64 = 2.5;
/// The first doses, all together, as a share of a unit's time.
const FIRST: f64 = 0.08;
/// The last: so much for each function.
const LAST: f64 = 1.0;
/// Slices with delays of each dose, and as many without.
const PAIRS: u32 = 2;
/// Blocks of the largest doses, where those did nothing.
const BOUNDING: u32 = 2 * LEAST_BLOCKS as u32;

/// How the service reacts to all delays together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Titrated {
    /// With this share of a unit's time for each function, a unit takes `up` more.
    Reacts {
        /// The share.
        share: f64,
        /// The share that came on top.
        up: f64,
    },
    /// The largest doses did nothing.
    DoesNotReact,
}

impl Runner<'_> {
    /// See above.
    pub(super) fn titrate(&mut self, candidates: &[u32]) -> Result<Titrated, Stop> {
        self.begin_phase(PhaseKind::Titrate, self.times.titrate);
        let mut share = FIRST / candidates.len() as f64;
        let mut block = 0;
        loop {
            let doses = self.doses(candidates, share);
            let at_last = share >= LAST || doses.iter().all(|(_, dose)| *dose == self.options.longest_call);
            let (mut with, mut without, mut guarded) = (0.0, 0.0, false);
            let pairs = if at_last { BOUNDING } else { PAIRS };
            for _ in 0..pairs {
                without += self.slice(block, Treatment::Control, &[])?.time_per_unit();
                let slice = self.slice(block, Treatment::Several, &doses)?;
                with += slice.time_per_unit();
                guarded |= slice.guarded;
                block += 1;
                if guarded {
                    break;
                }
            }
            let up = with / without - 1.0;
            let error = self.noise * (2.0 / f64::from(pairs)).sqrt();
            if guarded || (up >= REACTS && up > BELIEVED * error) {
                self.end_phase(&format!(
                    "all functions together, {:.1} % of a unit's time each: a unit takes {:.0} % more",
                    share * 100.0,
                    up * 100.0
                ));
                return Ok(Titrated::Reacts { share, up: up.max(REACTS) });
            }
            if at_last {
                self.end_phase("the largest delays of all functions together change nothing");
                return Ok(Titrated::DoesNotReact);
            }
            share = (share * 2.0).min(LAST);
        }
    }

    /// Doses that make each of these functions slower by this share of a unit's time.
    pub(super) fn doses(&self, candidates: &[u32], share: f64) -> Vec<(u32, Nanos)> {
        let dose = |number: &u32| {
            let candidate = self.measured.candidates.get(*number as usize)?;
            let calls = self.measured.calls_per_unit(candidate);
            Some((
                *number,
                call_dose(share * self.unit, calls, candidate.floor_ns, self.options.longest_call),
            ))
        };
        candidates.iter().filter_map(dose).filter(|(_, dose)| dose.0 > 0).collect()
    }
}
