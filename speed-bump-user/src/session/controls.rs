//! What may be asked and changed of a session at any moment, from any thread, without its event loop.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    SessionError,
    doses::{Applied, Doses},
    events::{EventLog, Events},
    known::KnownFunctions,
    snapshot::Snapshot,
};
use crate::{
    policy::{Dose, PolicyTable, Selection},
    targets::Targets,
};

/// See above. Clones are of the same session.
#[derive(Clone, Debug)]
pub struct Controls {
    pub(super) doses: Arc<Mutex<Doses>>,
    pub(super) events: EventLog,
    pub(super) targets: Arc<Targets>,
}

impl Controls {
    /// Sets doses, which come into force together, whatever the session is doing. Of several for the same
    /// functions the last counts.
    ///
    /// Where the helper is to spin other delays than before, those calls are not delayed for some
    /// milliseconds, until no signal with the old meaning is on its way.
    ///
    /// # Errors
    /// A target or a delay that cannot be; nothing has changed then.
    pub fn set(&self, changes: &[(Selection, Dose)]) -> Result<Applied, SessionError> {
        self.doses().set(changes)
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// The kernel does not give the counters.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        self.doses().snapshot()
    }

    /// What happened since this was asked last; where that is nothing, waits so long for something.
    pub fn events(&self, patience: Duration) -> Events {
        self.events.take(patience)
    }

    /// The functions that are known now.
    pub fn known(&self) -> Arc<KnownFunctions> {
        Arc::clone(self.doses().functions.known())
    }

    /// The targets of the session.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The doses that hold now.
    pub fn policies(&self) -> PolicyTable {
        self.doses().policies.clone()
    }

    fn doses(&self) -> MutexGuard<'_, Doses> {
        // Nothing in there panics half-way: it is as good as it was.
        self.doses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
