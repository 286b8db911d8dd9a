//! Measures the cost of a signal: its delivery and the return from its handler, without the trap.

use std::io;

use speed_bump_abi::{
    Coldness, FunctionEntry, Handshake, Policy, SiteArguments, control_block::HARMLESS_SIGNAL,
};

use super::{Bench, CALLS, CHECK_CALLS, CalibrateError, EVERYDAY, FIRST_CALLS, is_off, median, timed, touch};
use crate::{
    kernel::TaskOffsets,
    probe::cost::CostTable,
    process::stat::Stat,
    sys::own_handler::OwnHandler,
    units::{Nanos, Pid},
};

/// The delay of the trial. It is the shortest delay that causes a signal: the share of the BPF program, and 1
/// ns for the helper.
const TRIAL_DELAY: Nanos = Nanos(Policy::PROGRAMS_SHARE_NS + 1);
/// How often we measure the cost.
const MEASUREMENTS: usize = 3;

/// Measures the cost of a signal by sending signals to our own process. Takes some tens of milliseconds.
///
/// # Errors
/// See [`measure`](super::measure). Also fails if we cannot send signals to our own process.
pub fn measure_signal(costs: &mut CostTable, offsets: TaskOffsets) -> Result<(), CalibrateError> {
    let mut bench = Bench::new(costs.form, Some(offsets), CALLS, |kind| kind == EVERYDAY)?;
    costs.signal = bench.least_signal(costs)?;
    Ok(())
}

impl Bench {
    /// Checks the known cost of signals. Measures the cost if it is unknown or no longer right. Returns
    /// whether it measured the cost.
    pub(super) fn check_signal(&mut self, costs: &mut CostTable) -> Result<bool, CalibrateError> {
        if let Some(kept) = costs.signal
            && let Some(signal) = self.signal(costs, CHECK_CALLS)?
            && !is_off(EVERYDAY, kept, signal)
        {
            return Ok(false);
        }
        costs.signal = self.least_signal(costs)?;
        Ok(true)
    }

    /// The smallest of several measurements: a disturbance can only make a measurement longer.
    fn least_signal(&mut self, costs: &CostTable) -> Result<Option<Nanos>, CalibrateError> {
        let measurements = (0..MEASUREMENTS).map(|_| self.signal(costs, CALLS));
        Ok(measurements.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().min())
    }

    /// One measurement, from `calls` signals; `None` if this processor has no stub for the measurement.
    fn signal(&mut self, costs: &CostTable, calls: usize) -> Result<Option<Nanos>, CalibrateError> {
        let Some((site, stub, unprobed)) = self.everyday() else { return Ok(None) };
        self.engine.set_coldness([costs.coldness[Coldness::WAY_IN as usize], Coldness::default()])?;
        let overhead_ns = u32::try_from(costs.cost(stub.kind).overhead.0).unwrap_or(u32::MAX);
        self.engine
            .set_site(site, SiteArguments { function: site, overhead_ns, ..SiteArguments::default() })?;
        self.engine.functions().set_entry(site, FunctionEntry::of(0));
        let signal = HARMLESS_SIGNAL;
        let handler = OwnHandler::install(signal).map_err(CalibrateError::Signal)?;
        let started = own_start().map_err(CalibrateError::Signal)?;
        self.engine.set_handshake(Pid::own(), Handshake { started, handler: handler.address() })?;
        let policy = Policy { delay_ns: TRIAL_DELAY.0, frequency: 1, signal, or_spin: 0, signal_ns: 0 };
        let before = self.stats(site)?;
        self.set_policy(policy)?;
        let mut working_set = Vec::new();
        let mut taken: Vec<u64> = (0..FIRST_CALLS + calls)
            .map(|_| {
                touch(&mut working_set);
                timed(stub)
            })
            .collect();
        let stats = self.stats(site)?;
        let (missed, sent) = (stats.missed - before.missed, stats.delayed - before.delayed);
        if missed > 0 || sent == 0 {
            let text = format!("{missed} of {} signals to our own process were not sent", taken.len());
            return Err(CalibrateError::Signal(io::Error::other(text)));
        }
        let taken = median(taken.get_mut(FIRST_CALLS..).unwrap_or_default());
        Ok(Some(Nanos(taken.saturating_sub(unprobed + TRIAL_DELAY.0))))
    }
}

/// The time when our own process started, in ticks since boot.
fn own_start() -> io::Result<u64> {
    let stat = Stat::parse(&std::fs::read("/proc/self/stat")?);
    stat.map(|stat| stat.starttime).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn our_start_is_when_this_process_began() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        let started = super::own_start().unwrap();
        assert_eq!(started, super::own_start().unwrap());
        // A tick is a hundredth of a second.
        assert!(started > 1 && started as f64 <= (seconds + 1.0) * 100.0, "{started} {seconds}");
    }
}
