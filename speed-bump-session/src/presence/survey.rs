//! Finds out which functions a process has that targets select, and leaves again.

use std::sync::Arc;

use speed_bump_abi::control_block::HelperCommand;

use super::{HelperSetup, PresenceError};
use crate::{
    process::{Process, Program, mapped_file::FileIdentity},
    python::helper::{FoundFunction, NewFunctions, Room, words},
    targets::{ParsedTargets, selector},
};

/// What the helper found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Functions that a target selects.
    pub functions: Vec<FoundFunction>,
    /// The number of functions that it judged.
    pub looked_at: u64,
    /// The bits of the callers that targets name and that it found.
    pub callers_found: u64,
    /// Reasons why it may not have found some functions.
    pub unlisted: Vec<&'static str>,
    /// Its other notices.
    pub notices: Vec<&'static str>,
}

/// Injects the helper into the process, which runs this program (`interpreters`: the files with the
/// interpreter's code), lets it judge the loaded functions, and sends it away.
///
/// # Errors
/// The process is unchanged.
pub(crate) fn survey(
    process: &Process,
    program: &Program,
    interpreters: &[FileIdentity],
    setup: &HelperSetup,
) -> Result<Survey, PresenceError> {
    let presence = setup.bring_in(process, program, interpreters, Room::NAMED, HelperCommand::Survey)?;
    presence.wait_active(process, || false)?;
    let mut new = NewFunctions::default();
    let functions = new.take(&presence.block)?;
    let report = presence.block.report()?;
    if !presence.leave_and_wait(process, || false) {
        tracing::info!("the helper in process {} takes long to leave, and will", process.pid());
    }
    let mut notices = words::notices(report.notices);
    notices.extend(words::left_out(new.left_out()));
    let unlisted = words::not_listed(report.unlisted);
    let (looked_at, callers_found) = (report.surveyed, report.callers_found);
    Ok(Survey { functions, looked_at, callers_found, unlisted, notices })
}

/// Names of the functions that a process has loaded, for any targets: file and qualified name. There may be
/// more: the helper has room for [`Room::NAMED`].
///
/// # Errors
/// As [`survey`].
pub(crate) fn loaded(
    process: &Process,
    program: &Program,
    interpreters: &[FileIdentity],
    setup: &HelperSetup,
) -> Result<Vec<(String, String)>, PresenceError> {
    let Ok(everything) = ParsedTargets::parse("", b"py:*:*\n", false) else { return Ok(Vec::new()) };
    let selector: Arc<[u8]> = selector::compile(&everything.decide(|_| false))?.into();
    let found = survey(process, program, interpreters, &HelperSetup { selector, ..setup.clone() })?;
    Ok(found.functions.into_iter().map(|function| (function.file, function.name)).collect())
}
