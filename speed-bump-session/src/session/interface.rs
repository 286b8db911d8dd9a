//! What a session does, whatever its engine: the event loop and the handle know no more of it.

use std::{collections::HashMap, io, sync::Arc};

use super::{doses::Setting, ended::Ended, error::SessionError, state::State, told::ToldHelpers};
use crate::{
    probe::resolve::kinds,
    process::Process,
    stats::report::SessionReport,
    targets::{ParsedTargets, TargetChange, Targets},
};

/// A session in force, whatever its engine: attaching, following and leaving the processes that it covers.
pub(crate) trait Session {
    /// What every session has.
    fn state(&self) -> &State;

    /// The same, to change it.
    fn state_mut(&mut self) -> &mut State;

    /// The processes that it covers now.
    fn processes(&self) -> Vec<&Process>;

    /// Decides the kinds of lines by the files that these processes see.
    ///
    /// # Errors
    /// A file has to decide, and no process is left that sees any.
    fn decide_kinds(&mut self, parsed: ParsedTargets) -> Result<Targets, SessionError> {
        let processes = self.processes();
        let path = parsed.undecided().next().unwrap_or_default().to_owned();
        let of_session = Arc::clone(&self.state().doses().targets);
        // A line that the session has already means what it has meant all along.
        let targets = kinds::decide(parsed.decided_as_in(&of_session), processes.iter().copied());
        let targets = targets.ok_or(SessionError::Undecided { path })?;
        let doubts = kinds::doubts(&targets, &processes);
        doubts.into_iter().for_each(|doubt| self.state_mut().warn(doubt.text));
        Ok(targets)
    }

    /// Has targets come and go. What is returned has the doses that they are to have: whoever asks sets them,
    /// because that may have to wait.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError>;

    /// Has calls timed from here on, or not any more. Whoever asks waits for the helpers that were told.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn time_calls(&mut self, on: bool) -> Result<ToldHelpers, SessionError>;

    /// Takes up what helpers have found until now.
    fn hear_helpers(&mut self) {}

    /// Has the event loop wait for what [`turn`](Self::turn) waits for.
    fn listen(&mut self) -> io::Result<()>;

    /// Waits for what happens next, and takes it up. `Some`: that ends the session. May be dropped while it
    /// waits.
    async fn turn(&mut self) -> io::Result<Option<Ended>>;

    /// Takes up what has happened already.
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
