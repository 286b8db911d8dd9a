//! How much of an experiment's time is left.

use super::{Options, Pace, Runner, Stop, census::CENSUS_SLICES, steps::time_for};
use crate::{
    record::{Measured, PhaseKind},
    units::Nanos,
};

/// Slices take far longer than planned if they take more than this many times the planned time.
const FAR_LONGER: u64 = 2;
/// The least number of slices at the end.
const RECOVERY_SLICES: u32 = 4;
/// The time for these slices together, if more of them fit into this time.
const RECOVERY: Nanos = Nanos(1_000_000_000);

/// Why the time is too short for any delay, if units take as long as in the census.
pub fn no_room(options: &Options, measured: &Measured) -> Option<String> {
    let unit = measured.census.time_per_unit();
    let times = super::times(options, Pace { unit, under_way: None });
    let slice = times.whole_slice();
    if options.runs || slice.0.saturating_mul(u64::from(CENSUS_SLICES)) <= Nanos::from(options.total).0 {
        return None;
    }
    let wanted = time_for(slice);
    if options.slice.is_some() {
        return Some(format!(
            "a slice takes {slice}, and {CENSUS_SLICES} come before the first delay, for which there is no \
             time: take shorter slices (--slice), or --for {wanted}"
        ));
    }
    Some(format!(
        "a unit of work takes {}, and a slice has to hold some, so that it takes {slice}: the time that is \
         left has room for {} of them, and {CENSUS_SLICES} come before the first delay. Say --for {wanted}, \
         or count something that is done more often",
        Nanos((unit / 1e6) as u64 * 1_000_000),
        times.slices_in(Nanos::from(options.total)),
    ))
}

impl Runner<'_> {
    /// Ends the experiment if the time is up in the census, before any function was tried.
    pub(super) fn check_time(&self) -> Result<(), Stop> {
        let slice = self.slice_takes();
        let is_early = self.phase == PhaseKind::Census;
        if is_early && self.is_out_of_time() {
            Err(Stop::Time { slice, wanted: time_for(slice) })
        } else {
            Ok(())
        }
    }

    /// How long a slice takes: as planned, or as measured, if that is far longer, as with a slow metric.
    fn slice_takes(&self) -> Nanos {
        let elapsed = self.subject.now().0.saturating_sub(self.begun.0);
        let took = elapsed / self.measured.slices.len().max(1) as u64;
        let planned = self.times.whole_slice();
        if took > planned.0.saturating_mul(FAR_LONGER) { Nanos(took) } else { planned }
    }

    pub(super) fn recovery_slices(&self) -> u32 {
        self.times.slices_in(RECOVERY).max(RECOVERY_SLICES)
    }

    /// The time that is left, without the slices at the end.
    pub(super) fn time_left(&self) -> Nanos {
        let end = self.begun + Nanos::from(self.options.total);
        let at_end = self.times.whole_slice().0 * u64::from(self.recovery_slices());
        Nanos(end.0.saturating_sub(self.subject.now().0 + at_end))
    }

    /// Whether all of the time is up.
    pub(super) fn is_out_of_time(&self) -> bool {
        self.subject.now() >= self.begun + Nanos::from(self.options.total)
    }
}
