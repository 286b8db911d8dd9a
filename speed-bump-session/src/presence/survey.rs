//! Loads the helper into a process to find the functions that targets select, and makes it leave again.

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
    /// The functions that a target selects.
    pub functions: Vec<FoundFunction>,
    /// The number of functions that the helper has compared with the targets.
    pub looked_at: u64,
    /// The callers that targets name and that the helper has found, as bits.
    pub callers_found: u64,
    /// Why the helper may not have found some functions.
    pub unlisted: Vec<&'static str>,
    /// The helper's other notices.
    pub notices: Vec<&'static str>,
}

/// Injects the helper into a process that runs this program. The helper compares the loaded functions with
/// the targets, and leaves. `interpreters` are the files with the interpreter's code.
///
/// # Errors
/// We could not inject the helper. The process is unchanged.
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

/// The file and qualified name of the functions that a process has loaded, whether targets select them or
/// not. There may be more functions: the helper has room for [`Room::NAMED`].
///
/// # Errors
/// See [`survey`].
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
