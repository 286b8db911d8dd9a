//! What any thread may ask of a session and change in it at any moment, without its event loop.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::channel},
    time::Duration,
};

use tokio::sync::mpsc::UnboundedSender;

use super::{
    doses::{Applied, Doses, Setting},
    error::SessionError,
    events::{EventLog, Events},
    known::KnownFunctions,
    requests::{Request, answer},
    snapshot::Snapshot,
    told::ToldHelpers,
};
use crate::{
    policy::{DelayBound, Dose, PolicyTable, Selection},
    probe::plan::SelectedFunction,
    stats::report::SessionReport,
    targets::{ParsedTargets, TargetChange, TargetIndex, Targets},
};

/// Access to a session for any thread. Clones are of the same session.
#[derive(Clone, Debug)]
pub struct Controls {
    pub(super) doses: Arc<Mutex<Doses>>,
    /// Held while doses are set or targets change, so that this happens one after the other.
    pub(super) turn: Arc<Mutex<()>>,
    pub(super) events: EventLog,
    pub(super) requests: UnboundedSender<Request>,
}

impl Controls {
    /// Sets doses, which take effect together, whatever the session is doing. If several are for the same
    /// functions, the last counts.
    ///
    /// If the helper is to spin other delays than before, those calls are not delayed for some milliseconds,
    /// until no signal with the old delay is pending.
    ///
    /// # Errors
    /// An invalid target or delay; nothing has changed then.
    pub fn set(&self, changes: &[(Selection, Dose)]) -> Result<Applied, SessionError> {
        let _turn = self.take_turn();
        let setting = self.doses().pause(changes)?;
        self.finish(&setting)
    }

    /// Changes what each thread is delayed at most, from the next call on, in a session that began with a
    /// bound.
    ///
    /// # Errors
    /// The session began without one; nothing has changed then.
    pub fn set_bound(&self, bound: DelayBound) -> Result<(), SessionError> {
        self.doses().set_bound(bound)
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// The kernel does not give access to the counters.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        self.doses().snapshot()
    }

    /// The thread pointers of the threads that called functions last, one of each process: of all functions,
    /// or of a target's. Known only of Python functions that the helper delays.
    ///
    /// # Errors
    /// A helper does not give them.
    pub fn last_callers(&self, target: Option<TargetIndex>) -> io::Result<Vec<(SelectedFunction, u64)>> {
        self.doses().last_callers(target)
    }

    /// What happened since the last call; if nothing did, waits up to this long for something.
    pub fn events(&self, patience: Duration) -> Events {
        self.events.take(patience)
    }

    /// The functions that are known now.
    pub fn known(&self) -> Arc<KnownFunctions> {
        Arc::clone(self.doses().functions.known())
    }

    /// The targets of the session, including those that were removed.
    pub fn targets(&self) -> Arc<Targets> {
        Arc::clone(&self.doses().targets)
    }

    /// The targets that lines stand for in this session: their kinds depend on the files that its processes
    /// see, and the module `__main__` on what they run.
    ///
    /// # Errors
    /// [`SessionError::Undecided`], [`SessionError::Over`].
    pub fn decide_kinds(&self, parsed: ParsedTargets) -> Result<Targets, SessionError> {
        if parsed.undecided().next().is_none() {
            return Ok(parsed.decide(|_| false).with_main_files_of(&self.targets()));
        }
        let (answer_to, answered) = channel();
        self.requests.send(Request::DecideKinds(parsed, answer_to)).map_err(|_| SessionError::Over)?;
        let targets = answer(&self.requests, &answered).unwrap_or(Err(SessionError::Over))?;
        Ok(targets.with_main_files_of(&self.targets()))
    }

    /// Adds and removes targets, in the processes that are covered now and later. The session's own thread
    /// does this, and it takes as long as resolving and attaching do.
    ///
    /// When this returns, calls of the added targets are counted, and have their doses.
    ///
    /// A function stays with the target that has it: added targets take what no other selects.
    ///
    /// # Errors
    /// Targets that this session cannot add or remove; nothing has changed then. [`SessionError::Uncovered`]:
    /// the targets have changed, and functions of them are not covered in a process that the session is of.
    /// [`SessionError::Over`].
    pub fn change_targets(&self, change: TargetChange) -> Result<Applied, SessionError> {
        let _turn = self.take_turn();
        let (answer_to, answered) = channel();
        let request = Request::ChangeTargets(change, answer_to);
        self.requests.send(request).map_err(|_| SessionError::Over)?;
        let setting = answer(&self.requests, &answered).unwrap_or(Err(SessionError::Over))?;
        let applied = self.finish(&setting)?;
        setting.uncovered.map_or(Ok(applied), Err)
    }

    /// Times calls from here on, or no longer, in a session that began with room for it. When this returns,
    /// the change is in force, unless an interpreter is not ready for the helper. What was timed stays in the
    /// counters.
    ///
    /// Native functions can be timed only once in a session.
    ///
    /// # Errors
    /// The session began without room for times, or has timed native functions before; nothing has changed
    /// then. [`SessionError::Over`].
    pub fn time_calls(&self, on: bool) -> Result<(), SessionError> {
        let turn = self.take_turn();
        let (answer_to, answered) = channel();
        self.requests.send(Request::TimeCalls(on, answer_to)).map_err(|_| SessionError::Over)?;
        let told = answer(&self.requests, &answered).unwrap_or(Err(SessionError::Over))?;
        // Doses may be set while helpers are waited for.
        drop(turn);
        self.wait_for(&told);
        Ok(())
    }

    /// The report so far, as the session writes it at its end; `None` if it has ended.
    pub fn report(&self) -> Option<SessionReport> {
        let (answer_to, answered) = channel();
        self.requests.send(Request::Report(answer_to)).ok()?;
        answer(&self.requests, &answered)
    }

    /// The doses that are in force now.
    pub fn policies(&self) -> PolicyTable {
        self.doses().policies.clone()
    }

    /// Sets doses when their signals are free for them. The session goes on meanwhile, and other threads may
    /// use it.
    fn finish(&self, setting: &Setting) -> Result<Applied, SessionError> {
        setting.under_way.wait();
        self.wait_for(&setting.told);
        self.doses().set(setting)
    }

    /// Waits until helpers have applied what they were told, and the session has handled what they found.
    fn wait_for(&self, told: &ToldHelpers) {
        if !told.are_any() {
            return;
        }
        told.wait();
        let (answer_to, answered) = channel();
        if self.requests.send(Request::HearHelpers(answer_to)).is_ok() {
            // A session that has ended has nothing to handle.
            let _ = answer(&self.requests, &answered);
        }
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doses(&self) -> MutexGuard<'_, Doses> {
        // No code that holds the lock can panic halfway, so its content is sound.
        self.doses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
