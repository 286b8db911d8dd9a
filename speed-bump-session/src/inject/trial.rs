//! What is found out before a thread is borrowed: by every injection, and by who asks whether one would work.

use super::{
    InjectError, address_space::AddressSpace, addresses, filters, headroom, image::IMAGE, injectable::Image,
    preflight, resident, resident::Residents, step_times::StepTimes, symbols, symbols::Symbols,
};
use crate::{process::Process, sys::watchdog::Watchdog};

/// Everything that an injection goes by.
pub(super) struct Ready {
    pub(super) image: Image,
    pub(super) memory: AddressSpace,
    pub(super) symbols: Symbols,
    pub(super) residents: Residents,
}

impl Ready {
    /// Looks at a process, and refuses what must not be tried. Stops no thread.
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
        // Before anything is found out about the program, so that it cannot be taken for another's.
        let memory = AddressSpace::open(process)?;
        let symbols = symbols::find(process)?;
        step_times.step_done("symbols");
        resident::check_idle(process)?;
        let residents = resident::find(process, &parsed, image)?;
        step_times.step_done("resident");
        Ok(Self { image: parsed, memory, symbols, residents })
    }
}

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Nothing forbids injecting. Whether a thread comes to a safe point shows only when it is done.
    Passed,
    /// The same, but for the seccomp filters: all threads wait in calls that the program would see
    /// interrupted, were one stopped for a look.
    FiltersUnseen,
}

/// Does what injecting begins with. Where the process runs under a seccomp filter, a thread of it stands
/// still for less than a millisecond, as the kernel shows filters of such threads alone; nothing is changed.
///
/// # Errors
/// Why injecting would be refused.
pub fn would_try(process: &Process) -> Result<Trial, InjectError> {
    Ready::look(process, IMAGE, true, &mut StepTimes::start())?;
    // Dropped when that thread has ended, and with it whatever it still traces.
    let _watchdog = Watchdog::start();
    // A thread of our own, since the kernel lets go of whatever it traced when it ends.
    let judged = std::thread::scope(|scope| match scope.spawn(|| filters::judge(process)).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    Ok(judged?.map_or(Trial::FiltersUnseen, |()| Trial::Passed))
}
