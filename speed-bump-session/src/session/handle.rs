//! The handle of a session, which runs on a thread of its own.

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    controls::Controls,
    doses::Applied,
    error::SessionError,
    events::Event,
    interface::Session,
    run::{Ended, run},
    snapshot::Snapshot,
    stop::Stop,
};
use crate::{
    policy::{Dose, Selection},
    stats::report::SessionReport,
};

/// A running session. Dropping it stops the session and waits until everything is detached.
#[derive(Debug)]
pub struct Handle {
    controls: Controls,
    stop: Stop,
    outcome: Mutex<Receiver<Outcome>>,
    thread: Option<JoinHandle<()>>,
}

/// How a session ended.
#[derive(Debug)]
pub struct Outcome {
    /// Why; an error if its event loop failed.
    pub ended: io::Result<Ended>,
    /// What it counted.
    pub report: SessionReport,
}

impl Handle {
    /// Starts a session, and runs it on a thread of its own until something ends it, or the handle's owner
    /// does.
    pub(crate) fn start<S: Session>(
        start: impl FnOnce(Stop) -> Result<S, SessionError> + Send + 'static,
        stop: Stop,
    ) -> Result<Self, SessionError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(SessionError::Thread)?;
        let (started, begun) = sync_channel(1);
        let (ends, outcome) = sync_channel(1);
        let asks = stop.clone();
        let work = move || {
            let mut session = match start(asks) {
                Ok(session) => session,
                Err(error) => return drop(started.send(Err(error))),
            };
            // Nothing can receive the result, so there is no reason to go on.
            if started.send(Ok(session.state().controls())).is_err() {
                session.state().stop.ask();
            }
            let ended = runtime.block_on(run(&mut session));
            session.detach();
            let report = session.report();
            let why = ended.as_ref().ok().copied();
            let _ = ends.send(Outcome { ended, report });
            // The outcome is set before the end is announced.
            session.state().events.add(Event::Over { why });
        };
        let thread = thread::Builder::new().name("session".to_owned()).spawn(work);
        let thread = thread.map_err(SessionError::Thread)?;
        match begun.recv() {
            Ok(Ok(controls)) => {
                Ok(Self { controls, stop, outcome: Mutex::new(outcome), thread: Some(thread) })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SessionError::Lost),
        }
    }

    /// Access to the session that other threads can have too.
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    /// As [`Controls::set`].
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, changes: &[(Selection, Dose)]) -> Result<Applied, SessionError> {
        self.controls.set(changes)
    }

    /// As [`Controls::snapshot`].
    ///
    /// # Errors
    /// As there.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        self.controls.snapshot()
    }

    /// The report so far, as the session writes it at its end; `None` if it has ended.
    pub fn report(&self) -> Option<SessionReport> {
        self.controls.report()
    }

    /// Stops delaying at once, and makes the session detach.
    pub fn stop(&self) {
        self.stop.ask();
    }

    /// Waits up to this long for the end of the session; `None` if it goes on.
    ///
    /// # Errors
    /// [`SessionError::Lost`], also when the outcome was taken before.
    pub fn wait_for(&self, patience: Duration) -> Result<Option<Outcome>, SessionError> {
        match self.outcome().recv_timeout(patience) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(SessionError::Lost),
        }
    }

    /// Waits for the end of the session.
    ///
    /// # Errors
    /// As [`Handle::wait_for`].
    pub fn wait(&self) -> Result<Outcome, SessionError> {
        self.outcome().recv().map_err(|_| SessionError::Lost)
    }

    fn outcome(&self) -> MutexGuard<'_, Receiver<Outcome>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.ask();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
