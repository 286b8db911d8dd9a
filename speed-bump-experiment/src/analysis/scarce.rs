//! Services that wait for processors: there a spin takes time from other threads, and shows a little however
//! well it is hidden otherwise.

use super::{factor::Factor, verdict::Verdict};
use crate::record::Measured;

/// Threads that wait for a smaller share of the time are not slowed down by much.
const MIN_WAIT: f64 = 0.05;

/// The sensitivity that want of processors may explain; `None` if the service hardly waits for any. A delay
/// on a processor may be followed by as much waiting for the next as the thread's other work is. Measured on
/// planted services beside as many busy loops as processors: threads waited for 0.42 to 0.44 of the time that
/// they wanted a processor, and hidden delays showed 0.12 to 0.36.
pub(super) fn explains(measured: &Measured) -> Option<f64> {
    measured.around.as_ref()?.processor_wait.filter(|wait| *wait >= MIN_WAIT)
}

/// Withholds "matters" of functions of which want of processors may explain what shows.
pub(super) fn withhold(measured: &Measured, factors: &mut [Factor]) {
    let Some(explained) = explains(measured) else { return };
    let wait = measured.around.as_ref().and_then(|around| around.processor_wait).unwrap_or_default();
    for factor in factors.iter_mut().filter(|of| of.verdict == Verdict::Matters) {
        if factor.low.is_none_or(|low| low <= explained) {
            factor.verdict = Verdict::Undecided;
            factor.reason = Some(format!(
                "what shows of its delays may come from too few processors: threads of the service waited \
                 for one for {:.0} % of the time that they wanted one, and up to {explained:.2} of any delay \
                 shows for that",
                wait * 100.0
            ));
        }
    }
}
