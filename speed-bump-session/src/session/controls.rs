//! What may be asked and changed of a session at any moment, from any thread, without its event loop.

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
    policy::{Dose, PolicyTable, Selection},
    probe::plan::SelectedFunction,
    stats::report::SessionReport,
    targets::{ParsedTargets, TargetChange, TargetIndex, Targets},
};

/// See above. Clones are of the same session.
#[derive(Clone, Debug)]
pub struct Controls {
    pub(super) doses: Arc<Mutex<Doses>>,
    /// Held by whoever sets doses, or changes targets: they come one after the other.
    pub(super) turn: Arc<Mutex<()>>,
    pub(super) events: EventLog,
    pub(super) requests: UnboundedSender<Request>,
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
        let _turn = self.take_turn();
        let setting = self.doses().pause(changes)?;
        self.finish(&setting)
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// The kernel does not give the counters.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        self.doses().snapshot()
    }

    /// The thread pointers of the threads that called functions last, one of each process: of all functions,
    /// or of a target's. Known of Python functions that the helper delays.
    ///
    /// # Errors
    /// A helper does not give them.
    pub fn last_callers(&self, target: Option<TargetIndex>) -> io::Result<Vec<(SelectedFunction, u64)>> {
        self.doses().last_callers(target)
    }

    /// What happened since this was asked last; where that is nothing, waits so long for something.
    pub fn events(&self, patience: Duration) -> Events {
        self.events.take(patience)
    }

    /// The functions that are known now.
    pub fn known(&self) -> Arc<KnownFunctions> {
        Arc::clone(self.doses().functions.known())
    }

    /// The targets of the session, with those that were dropped.
    pub fn targets(&self) -> Arc<Targets> {
        Arc::clone(&self.doses().targets)
    }

    /// The targets that lines are in this session: what the files that its processes see decide of their
    /// kinds, and what the module `__main__` stands for.
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

    /// Has targets come and go, in the processes that are covered now and later. This is the session's own
    /// work, and takes as long as resolving and attaching do.
    ///
    /// When this returns, calls of what came are counted, and have their doses.
    ///
    /// A function stays with the target that has it: those that come take what no other selects.
    ///
    /// # Errors
    /// Targets that this session cannot take up; nothing has changed then. [`SessionError::Over`].
    pub fn change_targets(&self, change: TargetChange) -> Result<Applied, SessionError> {
        let _turn = self.take_turn();
        let (answer_to, answered) = channel();
        let request = Request::ChangeTargets(change, answer_to);
        self.requests.send(request).map_err(|_| SessionError::Over)?;
        let setting = answer(&self.requests, &answered).unwrap_or(Err(SessionError::Over))?;
        self.finish(&setting)
    }

    /// Has calls timed from here on, or not any more, in a session that began so that it can. When this
    /// returns, that is so, unless an interpreter keeps the helper from it. What was timed stays in the
    /// counters.
    ///
    /// Native functions can be timed once in a session.
    ///
    /// # Errors
    /// The session began without room for times, or has timed native functions before; nothing has changed
    /// then. [`SessionError::Over`].
    pub fn time_calls(&self, on: bool) -> Result<(), SessionError> {
        let _turn = self.take_turn();
        let (answer_to, answered) = channel();
        self.requests.send(Request::TimeCalls(on, answer_to)).map_err(|_| SessionError::Over)?;
        let told = answer(&self.requests, &answered).unwrap_or(Err(SessionError::Over))?;
        self.wait_for(&told);
        Ok(())
    }

    /// The report so far, as the session writes it at its end; `None` if it has ended.
    pub fn report(&self) -> Option<SessionReport> {
        let (answer_to, answered) = channel();
        self.requests.send(Request::Report(answer_to)).ok()?;
        answer(&self.requests, &answered)
    }

    /// The doses that hold now.
    pub fn policies(&self) -> PolicyTable {
        self.doses().policies.clone()
    }

    /// Sets doses when their signals may mean them. The session goes on meanwhile, and others may ask it.
    fn finish(&self, setting: &Setting) -> Result<Applied, SessionError> {
        setting.under_way.wait();
        self.wait_for(&setting.told);
        self.doses().set(setting)
    }

    /// Waits until helpers have taken up what they were told, and the session what they have found.
    fn wait_for(&self, told: &ToldHelpers) {
        if !told.are_any() {
            return;
        }
        told.wait();
        let (answer_to, answered) = channel();
        if self.requests.send(Request::HearHelpers(answer_to)).is_ok() {
            // A session that is over has nothing to take up.
            let _ = answer(&self.requests, &answered);
        }
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doses(&self) -> MutexGuard<'_, Doses> {
        // Nothing in there panics half-way: it is as good as it was.
        self.doses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
