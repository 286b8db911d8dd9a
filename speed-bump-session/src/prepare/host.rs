//! What every attach needs of the machine: privileges, kernel features, and a trial on functions of our own.
//!
//! An attach and `doctor` use the same checks, so that they come to the same result.

use super::PrepareError;
use crate::{
    calibrate,
    kernel::{KernelFacts, PrivilegeError, Privileges, TaskOffsets},
    probe::cost::CostTable,
};

/// The machine, and what this process may do on it.
#[derive(Clone, Debug)]
pub struct Host {
    /// The features of the kernel.
    pub kernel: KernelFacts,
    /// Our privileges.
    pub privileges: Result<Privileges, PrivilegeError>,
}

impl Host {
    /// Reads the facts about the kernel, and our privileges.
    pub fn read() -> Self {
        Self { kernel: KernelFacts::read(), privileges: Privileges::read() }
    }

    /// Returns an error if something is missing that every attach needs.
    ///
    /// # Errors
    /// A privilege is missing, the kernel refuses a system call, or the kernel lacks something.
    pub fn check(&self) -> Result<(), PrepareError> {
        let privileges = self.privileges.as_ref().map_err(Clone::clone)?;
        privileges.require(self.kernel.attach_by())?;
        self.kernel.require()?;
        privileges.require_calls(&self.kernel)?;
        Ok(())
    }

    /// Tries to attach: loads the programs, attaches to functions of our own, and measures the costs. Takes
    /// some tens of milliseconds.
    ///
    /// # Errors
    /// [`Host::check`] fails, or the trial does.
    pub fn try_attaching(&self) -> Result<CostTable, PrepareError> {
        self.check()?;
        Ok(calibrate::measure(&self.kernel)?)
    }
}

/// Tries to send signals to a helper, and measures what that costs.
///
/// # Errors
/// Signals cannot be sent.
pub fn try_signals(costs: &mut CostTable) -> Result<(), PrepareError> {
    match TaskOffsets::usable() {
        Ok(offsets) => Ok(calibrate::measure_signal(costs, offsets)?),
        Err(why) => Err(PrepareError::NoSignals(why.to_string())),
    }
}
