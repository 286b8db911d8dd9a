//! What a session does, whatever its engine: all that the event loop and the handle know of it.

use std::{collections::HashMap, io, sync::Arc};

use super::{doses::Setting, ended::Ended, error::SessionError, state::State, told::ToldHelpers};
use crate::{
    probe::resolve::kinds,
    process::Process,
    stats::report::SessionReport,
    targets::{ParsedTargets, TargetChange, Targets},
};

/// A running session, whatever its engine: attaches to processes, follows them and detaches.
pub(crate) trait Session {
    /// What every session has.
    fn state(&self) -> &State;

    /// The same state, to change it.
    fn state_mut(&mut self) -> &mut State;

    /// The processes that it covers now.
    fn processes(&self) -> Vec<&Process>;

    /// Decides the kinds of lines by the files that these processes see.
    ///
    /// # Errors
    /// The kind depends on a file, and no process is left that sees it.
    fn decide_kinds(&mut self, parsed: ParsedTargets) -> Result<Targets, SessionError> {
        let processes = self.processes();
        let path = parsed.undecided().next().unwrap_or_default().to_owned();
        let of_session = Arc::clone(&self.state().doses().targets);
        // A line that the session has already keeps its meaning.
        let targets = kinds::decide(parsed.decided_as_in(&of_session), processes.iter().copied());
        let targets = targets.ok_or(SessionError::Undecided { path })?;
        let doubts = kinds::doubts(&targets, &processes);
        doubts.into_iter().for_each(|doubt| self.state_mut().warn(doubt.text));
        Ok(targets)
    }

    /// Adds and removes targets. The result contains the doses that they are to have: the caller sets them,
    /// because that may have to wait. It also contains why functions of the targets are not
    /// covered in a process that the session is of, if so.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError>;

    /// Times calls from here on, or no longer. The caller waits for the helpers in the result.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn time_calls(&mut self, on: bool) -> Result<ToldHelpers, SessionError>;

    /// Handles what helpers have found until now.
    fn hear_helpers(&mut self) {}

    /// Makes the event loop wait for the sources of [`turn`](Self::turn).
    fn listen(&mut self) -> io::Result<()>;

    /// Waits for the next event, and handles it. `Some`: it ends the session. May be dropped while it waits.
    async fn turn(&mut self) -> io::Result<Option<Ended>>;

    /// Handles what has happened already.
    fn catch_up(&mut self);

    /// Detaches from everything. Counters stay readable.
    fn detach(&mut self);

    /// Calls that are not in the counters yet, by the index of their function.
    fn pending_calls(&self) -> HashMap<u32, u64>;

    /// What was counted so far.
    fn report(&self) -> SessionReport {
        self.state().report(&self.pending_calls())
    }
}
