//! The checks before a thread is borrowed: for every injection, and for a trial of whether one would work.

use super::{
    InjectError, address_space::AddressSpace, addresses, filters, headroom, image::IMAGE, injectable::Image,
    preflight, resident, resident::Residents, step_times::StepTimes, symbols, symbols::Symbols,
};
use crate::{process::Process, sys::watchdog::Watchdog};

/// Everything that an injection needs to know.
pub(super) struct Ready {
    pub(super) image: Image,
    pub(super) memory: AddressSpace,
    pub(super) symbols: Symbols,
    pub(super) residents: Residents,
}

impl Ready {
    /// Inspects a process, and fails if injecting must not be tried. Stops no thread.
    pub(super) fn look(
        process: &Process,
        image: &[u8],
        for_python: bool,
        step_times: &mut StepTimes,
    ) -> Result<Self, InjectError> {
        preflight::check(process)?;
        headroom::check(process, for_python)?;
        addresses::check(process)?;
        step_times.step_done("preflight");
        let parsed = Image::parse(image)?;
        step_times.step_done("image");
        // Before we learn anything about the program, so that we cannot take it for another's.
        let memory = AddressSpace::open(process)?;
        let symbols = symbols::find(process)?;
        step_times.step_done("symbols");
        resident::check_idle(process)?;
        let residents = resident::find(process, &parsed, image)?;
        step_times.step_done("resident");
        Ok(Self { image: parsed, memory, symbols, residents })
    }
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Nothing forbids injecting. Whether a thread reaches a safe point only shows during an injection.
    Passed,
    /// The same, but the seccomp filters are unknown: all threads wait in calls that the program would see
    /// interrupted if we stopped one.
    FiltersUnseen,
}

/// Does the first steps of an injection. If the process runs under a seccomp filter, we stop a thread of it
/// for less than a millisecond, as the kernel shows the filters of stopped threads only. Nothing changes.
///
/// # Errors
/// Why injecting would be refused.
pub fn would_try(process: &Process) -> Result<Trial, InjectError> {
    Ready::look(process, IMAGE, true, &mut StepTimes::start())?;
    // Dropped when that thread has ended, and with it everything that it still traces.
    let _watchdog = Watchdog::start();
    // A thread of our own, since the kernel detaches from all that it traced when it ends.
    let judged = std::thread::scope(|scope| match scope.spawn(|| filters::judge(process)).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    Ok(judged?.map_or(Trial::FiltersUnseen, |()| Trial::Passed))
}
