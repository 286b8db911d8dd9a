//! Finding out which functions a process has that targets select, and leaving again.

use speed_bump_abi::control_block::Command;

use super::{PresenceError, Terms};
use crate::{
    process::{Process, mapped_file::FileIdentity},
    python::helper::{FoundFunction, NewFunctions, Room, words},
};

/// What the helper found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Functions that a target selects.
    pub functions: Vec<FoundFunction>,
    /// Functions that were looked at.
    pub looked_at: u64,
    /// What else it had to say.
    pub notices: Vec<&'static str>,
}

/// Brings the helper into the process (`interpreters`: the files with the interpreter's code), has it look at what is
/// loaded, and sends it away.
///
/// # Errors
/// The process goes on as it was.
pub fn survey(
    process: &Process,
    interpreters: &[FileIdentity],
    terms: &Terms,
) -> Result<Survey, PresenceError> {
    let presence = terms.bring_in(process, interpreters, Room::NAMED, Command::Survey)?;
    presence.wait_active(process, || false)?;
    let functions = NewFunctions::default().take(&presence.block)?;
    let report = presence.block.report()?;
    if !presence.leave_and_wait(process, || false) {
        tracing::info!("the helper in process {} takes long to leave, and will", process.pid());
    }
    Ok(Survey { functions, looked_at: report.surveyed, notices: words::notices(report.notices) })
}
