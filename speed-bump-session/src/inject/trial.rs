//! The checks before we borrow a thread. Every injection makes these checks. A trial makes them, too, to find
//! out whether we would try an injection.

use super::{
    InjectError, address_space::AddressSpace, addresses, filters, headroom, image::IMAGE, injectable::Image,
    preflight, resident, resident::Residents, step_times::StepTimes, symbols, symbols::Symbols,
};
use crate::{process::Process, sys::watchdog::Watchdog};

/// Everything that an injection must know beforehand.
pub(super) struct Ready {
    pub(super) image: Image,
    pub(super) memory: AddressSpace,
    pub(super) symbols: Symbols,
    pub(super) residents: Residents,
}

impl Ready {
    /// Inspects a process. Fails if we must not try to inject. Stops no thread.
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
        // We open the memory before we learn anything about the program, so that all facts are about this
        // program.
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
    /// Nothing forbids injecting. Only an injection shows whether a thread reaches a safe point.
    Passed,
    /// Nothing that we know forbids injecting. We cannot see the seccomp filters: all threads wait in calls,
    /// and the program would notice an interruption of these calls.
    FiltersUnseen,
}

/// Does the first steps of an injection, and changes nothing. If the process runs under a seccomp filter,
/// this stops one of its threads for less than a millisecond, because the kernel only shows the filters of
/// stopped threads.
///
/// # Errors
/// We would refuse to inject, for this reason.
pub fn would_try(process: &Process) -> Result<Trial, InjectError> {
    Ready::look(process, IMAGE, true, &mut StepTimes::start())?;
    // We drop the watchdog when the following thread has ended, and has detached from everything that it
    // traced.
    let _watchdog = Watchdog::start();
    // We trace on a thread of our own, because the kernel detaches everything that a thread traces when that
    // thread ends.
    let judged = std::thread::scope(|scope| match scope.spawn(|| filters::judge(process)).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    Ok(judged?.map_or(Trial::FiltersUnseen, |()| Trial::Passed))
}
