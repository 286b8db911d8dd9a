//! The handle of a session. The session runs on its own thread.

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

/// A running session. Dropping this value stops the session, and waits until it has detached everything.
#[derive(Debug)]
pub struct Handle {
    controls: Controls,
    stop: Stop,
    outcome: Mutex<Receiver<Outcome>>,
    thread: Option<JoinHandle<()>>,
}

/// The end of a session.
#[derive(Debug)]
pub struct Outcome {
    /// Why the session ended; an error if its event loop failed.
    pub ended: io::Result<Ended>,
    /// The counts of the session.
    pub report: SessionReport,
}

impl Handle {
    /// Starts a session, and runs it on its own thread until something ends it, or the owner of the handle
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
            // No one can receive the result any more, so the session stops.
            if started.send(Ok(session.state().controls())).is_err() {
                session.state().stop.ask();
            }
            let ended = runtime.block_on(run(&mut session));
            session.detach();
            let report = session.report();
            let why = ended.as_ref().ok().copied();
            let _ = ends.send(Outcome { ended, report });
            // We store the result before the event, so that whoever gets the event finds the result.
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

    /// Access to the session for other threads.
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    /// See [`Controls::set`].
    ///
    /// # Errors
    /// See [`Controls::set`].
    pub fn set(&self, changes: &[(Selection, Dose)]) -> Result<Applied, SessionError> {
        self.controls.set(changes)
    }

    /// See [`Controls::snapshot`].
    ///
    /// # Errors
    /// See [`Controls::snapshot`].
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        self.controls.snapshot()
    }

    /// The report so far, in the same form as at the session's end; `None` if the session has ended.
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
    /// [`SessionError::Lost`]. Also if someone has already taken the outcome.
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
    /// See [`Handle::wait_for`].
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
