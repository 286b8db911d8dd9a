//! What a session does, whatever its engine: the event loop and the handle know no more of it.

use std::{collections::HashMap, io};

use super::{doses::Setting, ended::Ended, error::SessionError, state::State};
use crate::{stats::report::SessionReport, targets::TargetChange};

/// A session in force, whatever its engine: attaching, following and leaving the processes that it covers.
pub(crate) trait Session {
    /// What every session has.
    fn state(&self) -> &State;

    /// The same, to change it.
    fn state_mut(&mut self) -> &mut State;

    /// Has targets come and go. What is returned has the doses that they are to have: whoever asks sets them,
    /// because that may have to wait.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError>;

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
