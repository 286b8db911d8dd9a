//! The load that a sweep starts itself (`--load`).

use std::time::{Duration, Instant};

use super::{
    error::SweepError,
    observer::{Observer, Step},
    sampled::units_done,
    session::Context,
};
use crate::{
    experiment::{live::wait_until, load_command::LoadCommand, metric::Metric, record::Measured},
    session::{handle::Handle, quit::Quit},
    sys::clock::now,
    units::Nanos,
};

/// How often to poll for units.
const POLL: Duration = Duration::from_millis(20);

/// Starts the load. When it fails, `quit` is asked.
pub(super) fn start(
    command: Option<&str>,
    quit: &Quit,
    observer: &mut dyn Observer,
) -> Result<Option<LoadCommand>, SweepError> {
    let Some(command) = command else { return Ok(None) };
    let quit = quit.clone();
    let load = LoadCommand::start(command, move || quit.ask());
    let load = load.map_err(|error| SweepError::Load(format!("the load cannot be started: {error}")))?;
    observer.line(&format!("load: started `{command}`"));
    Ok(Some(load))
}

/// Adds to a record how the load ended. If the load failed, no verdict stands, unless all delays were over.
pub(super) fn put_in(measured: &mut Measured, load: Option<&LoadCommand>) {
    let Some(load) = load else { return };
    measured.load = Some(load.record());
    let Some(why) = load.failed().filter(|_| measured.aborted.is_some() && measured.guard.is_none()) else {
        return;
    };
    measured.aborted = Some(why.clone());
    if !measured.delays_were_over() {
        measured.invalid = Some(why);
    }
}

impl Context<'_> {
    /// Waits until the load has the service do units, if the sweep has started a load. A metric whose units
    /// are calls is read in this session.
    pub(super) fn wait_for_units(
        &self,
        metric: &mut dyn Metric,
        unit: &str,
        handle: Option<&Handle>,
        observer: &mut dyn Observer,
    ) -> Result<(), SweepError> {
        let Some(command) = &self.options.load else { return Ok(()) };
        let (begun, patience) = (Instant::now(), self.options.wait_load.min(self.options.time));
        observer.step(Step::Load);
        let mut units = units_done(metric, handle);
        let first = units();
        loop {
            match handle {
                Some(handle) => wait_until(handle, self.quit, now() + Nanos::from(POLL))
                    .map_err(|error| SweepError::before_slices(error, unit))?,
                None if self.quit.is_asked() => return Err(SweepError::Stopped),
                None => std::thread::sleep(POLL),
            }
            // If the metric has an error, the next reading reports it.
            let (Some(first), Some(count)) = (first, units()) else { return Ok(()) };
            if count > first {
                return Ok(());
            }
            if begun.elapsed() > patience {
                let (unit, command) = (unit.to_owned(), command.clone());
                let waited = Nanos::from(patience);
                return Err(SweepError::LoadWithoutUnits { unit, command, waited });
            }
        }
    }
}
