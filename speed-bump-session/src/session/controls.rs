//! What any thread may read and change in a session at any moment, without its event loop.

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

/// Gives any thread access to a session. Clones access the same session.
#[derive(Clone, Debug)]
pub struct Controls {
    pub(super) doses: Arc<Mutex<Doses>>,
    /// A thread holds this lock while it sets doses or changes targets, so that these changes do not overlap.
    pub(super) turn: Arc<Mutex<()>>,
    pub(super) events: EventLog,
    pub(super) requests: UnboundedSender<Request>,
}

impl Controls {
    /// Sets doses. All these doses take effect together, whatever the session is doing. If there are several
    /// doses for the same function, the last one counts.
    ///
    /// If the helper must spin other delays than before, this needs some milliseconds, until no signal with
    /// an old delay is pending. In this time, calls with changed delays are not delayed.
    ///
    /// # Errors
    /// A target or delay is invalid. Nothing has changed.
    pub fn set(&self, changes: &[(Selection, Dose)]) -> Result<Applied, SessionError> {
        let _turn = self.take_turn();
        let setting = self.doses().pause(changes)?;
        self.finish(&setting)
    }

    /// Changes the most that each thread is delayed, from the next call on. The session must have begun with
    /// a bound.
    ///
    /// # Errors
    /// The session began without a bound. Nothing has changed.
    pub fn set_bound(&self, bound: DelayBound) -> Result<(), SessionError> {
        self.doses().set_bound(bound)
    }

    /// The counts so far.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        self.doses().snapshot()
    }

    /// The thread pointers of the threads that called functions last, one for each process. This is for all
    /// functions, or for the functions of a target. We know the threads only for Python functions that the
    /// helper delays.
    ///
    /// # Errors
    /// The helper's block cannot be read.
    pub fn last_callers(&self, target: Option<TargetIndex>) -> io::Result<Vec<(SelectedFunction, u64)>> {
        self.doses().last_callers(target)
    }

    /// The events since the last call. If there are none, waits up to this long for one.
    pub fn events(&self, patience: Duration) -> Events {
        self.events.take(patience)
    }

    /// The functions that the session knows now.
    pub fn known(&self) -> Arc<KnownFunctions> {
        Arc::clone(self.doses().functions.known())
    }

    /// The targets of the session, including the removed ones.
    pub fn targets(&self) -> Arc<Targets> {
        Arc::clone(&self.doses().targets)
    }

    /// Turns lines into targets of this session. The kinds of lines depend on the files that the session's
    /// processes see, and the module `__main__` depends on the scripts that these processes run.
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

    /// Adds and removes targets, in the processes that the session covers now and later. The session's own
    /// thread does this. The call takes the time of resolving and attaching.
    ///
    /// When this returns, the session counts calls of the added targets, and their doses apply.
    ///
    /// A function stays with its present target: added targets only get functions that no other target
    /// selects.
    ///
    /// # Errors
    /// The session cannot add or remove these targets; nothing has changed. [`SessionError::Uncovered`]: the
    /// targets have changed, but the session does not cover some of their functions in a process named on the
    /// command line. [`SessionError::Over`].
    pub fn change_targets(&self, change: TargetChange) -> Result<Applied, SessionError> {
        let _turn = self.take_turn();
        let (answer_to, answered) = channel();
        let request = Request::ChangeTargets(change, answer_to);
        self.requests.send(request).map_err(|_| SessionError::Over)?;
        let setting = answer(&self.requests, &answered).unwrap_or(Err(SessionError::Over))?;
        let applied = self.finish(&setting)?;
        setting.uncovered.map_or(Ok(applied), Err)
    }

    /// Starts or stops timing calls. The session must have begun with room for times. When this returns, the
    /// change is in force, unless an interpreter is not ready for the helper. Past times stay in the
    /// counters.
    ///
    /// A session can start to time native functions only once.
    ///
    /// # Errors
    /// The session began without room for times, or has timed native functions before; nothing has changed.
    /// [`SessionError::Over`].
    pub fn time_calls(&self, on: bool) -> Result<(), SessionError> {
        let turn = self.take_turn();
        let (answer_to, answered) = channel();
        self.requests.send(Request::TimeCalls(on, answer_to)).map_err(|_| SessionError::Over)?;
        let told = answer(&self.requests, &answered).unwrap_or(Err(SessionError::Over))?;
        // Other threads may set doses while this one waits for helpers.
        drop(turn);
        self.wait_for(&told);
        Ok(())
    }

    /// The report so far, in the same form as at the session's end; `None` if the session has ended.
    pub fn report(&self) -> Option<SessionReport> {
        let (answer_to, answered) = channel();
        self.requests.send(Request::Report(answer_to)).ok()?;
        answer(&self.requests, &answered)
    }

    /// The present doses.
    pub fn policies(&self) -> PolicyTable {
        self.doses().policies.clone()
    }

    /// Sets doses when their signals are free. The session goes on meanwhile, and other threads may use it.
    fn finish(&self, setting: &Setting) -> Result<Applied, SessionError> {
        setting.under_way.wait();
        self.wait_for(&setting.told);
        self.doses().set(setting)
    }

    /// Waits until helpers have applied what we told them, and the session has handled their reports.
    fn wait_for(&self, told: &ToldHelpers) {
        if !told.are_any() {
            return;
        }
        told.wait();
        let (answer_to, answered) = channel();
        if self.requests.send(Request::HearHelpers(answer_to)).is_ok() {
            // If the session has ended, there is nothing to handle.
            let _ = answer(&self.requests, &answered);
        }
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doses(&self) -> MutexGuard<'_, Doses> {
        // No code that holds the lock can panic halfway, so the data is consistent.
        self.doses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
