//! What every session can do, whatever its engine. The event loop and the handle know nothing else of a
//! session.

use std::{collections::HashMap, io, sync::Arc};

use super::{doses::Setting, ended::Ended, error::SessionError, state::State, told::ToldHelpers};
use crate::{
    probe::resolve::kinds,
    process::Process,
    stats::report::SessionReport,
    targets::{ParsedTargets, TargetChange, Targets},
};

/// A running session, whatever its engine: it attaches to processes, follows them and detaches.
pub(crate) trait Session {
    /// The state that every session has.
    fn state(&self) -> &State;

    /// The state, for changing it.
    fn state_mut(&mut self) -> &mut State;

    /// The processes that the session covers now.
    fn processes(&self) -> Vec<&Process>;

    /// Decides the kinds of lines. The files that the session's processes see decide them.
    ///
    /// # Errors
    /// A kind depends on a file, and there is no process left that sees it.
    fn decide_kinds(&mut self, parsed: ParsedTargets) -> Result<Targets, SessionError> {
        let processes = self.processes();
        let path = parsed.undecided().next().unwrap_or_default().to_owned();
        let of_session = Arc::clone(&self.state().doses().targets);
        // A line that the session has already keeps its kind.
        let targets = kinds::decide(parsed.decided_as_in(&of_session), processes.iter().copied());
        let targets = targets.ok_or(SessionError::Undecided { path })?;
        let doubts = kinds::doubts(&targets, &processes);
        doubts.into_iter().for_each(|doubt| self.state_mut().warn(doubt.text));
        Ok(targets)
    }

    /// Adds and removes targets. The result has the doses to set: the caller sets them, because it may have
    /// to wait first. If the session does not cover some functions in a process named on the command line,
    /// the result also has the reason.
    ///
    /// # Errors
    /// The session cannot change the targets. Nothing has changed.
    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError>;

    /// Starts or stops timing calls. The caller must wait for the helpers in the result.
    ///
    /// # Errors
    /// The session cannot switch timing. Nothing has changed.
    fn time_calls(&mut self, on: bool) -> Result<ToldHelpers, SessionError>;

    /// Handles the reports of helpers.
    fn hear_helpers(&mut self) {}

    /// Makes the event loop wait for the events that [`turn`](Self::turn) handles.
    fn listen(&mut self) -> io::Result<()>;

    /// Waits for the next event, and handles it. Returns `Some` if the event ends the session. The caller may
    /// drop the future while it waits.
    async fn turn(&mut self) -> io::Result<Option<Ended>>;

    /// Handles everything that has happened so far.
    fn catch_up(&mut self);

    /// Detaches from everything. Counters stay readable.
    fn detach(&mut self);

    /// Calls that are not in the counters yet, by the index of their function.
    fn pending_calls(&self) -> HashMap<u32, u64>;

    /// The counts so far.
    fn report(&self) -> SessionReport {
        self.state().report(&self.pending_calls())
    }
}
