//! What every attach asks of the machine: what it may do here, and a try on functions of our own.
//!
//! An attach and `doctor` ask the same, so that they get the same answer.

use super::PrepareError;
use crate::{
    calibrate,
    kernel::{KernelFacts, PrivilegeError, Privileges, TaskOffsets},
    probe::cost::CostTable,
};

/// The machine, and what we may do with it.
#[derive(Clone, Debug)]
pub struct Ground {
    /// What the kernel supports.
    pub kernel: KernelFacts,
    /// Our privileges.
    pub privileges: Result<Privileges, PrivilegeError>,
}

impl Ground {
    /// Looks at both, now.
    pub fn read() -> Self {
        Self { kernel: KernelFacts::read(), privileges: Privileges::read() }
    }

    /// Refuses to go on without what every attach needs.
    ///
    /// # Errors
    /// A privilege is missing, a system call is refused, or the kernel lacks something.
    pub fn check(&self) -> Result<(), PrepareError> {
        let privileges = self.privileges.as_ref().map_err(Clone::clone)?;
        privileges.require(self.kernel.attach_by())?;
        self.kernel.require()?;
        privileges.require_calls(&self.kernel)?;
        Ok(())
    }

    /// Tries it: loads the programs, and attaches to functions of our own, whose costs are measured. Takes
    /// some tens of milliseconds.
    ///
    /// # Errors
    /// As [`Ground::check`]; or the try has failed.
    pub fn try_attaching(&self) -> Result<CostTable, PrepareError> {
        self.check()?;
        Ok(calibrate::measure(&self.kernel)?)
    }
}

/// Tries whether helpers can be sent signals, and measures what that costs.
///
/// # Errors
/// They cannot.
pub fn try_signals(costs: &mut CostTable) -> Result<(), PrepareError> {
    match TaskOffsets::usable() {
        Ok(offsets) => Ok(calibrate::measure_signal(costs, offsets)?),
        Err(why) => Err(PrepareError::NoSignals(why.to_string())),
    }
}
