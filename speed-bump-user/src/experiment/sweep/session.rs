//! The session of a sweep. It begins without delays, adds and drops targets as the sweep learns, and switches
//! timing of calls on and off. It stops preparing when the sweep is ended.

use std::{thread, time::Duration};

use super::{error::SweepError, observer::Observer, options::Options};
use crate::{
    experiment::{live::NOTHING, subject::SubjectError},
    policy::{DoseError, Selection},
    prepare::{PrepareError, Prepared, Purpose, Request, notice::Notice, times},
    probe::{plan::SelectedFunction, resolve::KnownFunctions},
    session::{SessionError, controls::Controls, handle::Handle, quit::Quit},
    targets::{Target, TargetIndex, Targets, source::TargetSource},
    units::Pid,
};

/// How often to check whether preparation is still wanted.
const WANTED: Duration = Duration::from_millis(10);

/// Data that all parts of a sweep use.
pub(super) struct Context<'a> {
    pub(super) options: &'a Options,
    pub(super) processes: &'a [Pid],
    pub(super) quit: &'a Quit,
    /// Functions of files that were read, for all sessions.
    pub(super) known: KnownFunctions,
}

/// Which notices a new session passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notices {
    /// All notices.
    All,
    /// Only notices about processes, because its targets are a guess.
    OfProcesses,
}

impl Notices {
    fn has(self, notice: &Notice) -> bool {
        match notice {
            Notice::BelowFloor { .. } | Notice::BelowColdFloor { .. } => false,
            Notice::SelectsNothing(_) | Notice::NotTimed { .. } => self == Self::All,
            _ => true,
        }
    }
}

/// The session of a sweep with its present targets.
#[derive(Debug)]
pub(super) struct SweepSession {
    pub(super) handle: Handle,
    /// The places of the targets in the session, in the order in which the sweep has them.
    pub(super) places: Vec<TargetIndex>,
}

impl Context<'_> {
    /// A session with these targets, with or without timing: the earlier one, if it can change to them, or
    /// else a new one. Only a new session passes notices on.
    pub(super) fn session(
        &self,
        before: Option<SweepSession>,
        targets: &TargetSource,
        times: bool,
        notices: Notices,
        observer: &mut dyn Observer,
    ) -> Result<SweepSession, SweepError> {
        if let Some(mut session) = before {
            match session.change(self, targets, times) {
                Ok(()) => return Ok(session),
                Err(SweepError::Session(
                    // The new session reports what cannot be attached.
                    error @ (SessionError::Retarget(_)
                    | SessionError::Uncovered { .. }
                    | SessionError::Over
                    | SessionError::Undecided { .. }
                    | SessionError::Dose(DoseError::TooManyTargets)),
                )) => tracing::info!("the sweep begins another session: {error}"),
                Err(error) => return Err(error),
            }
            // One session at a time.
            drop(session);
        }
        // Calls may be timed later, except with the kernel module, which cannot time calls.
        let times_later = !times && !self.options.engine.is_kmod();
        let is_guess = notices == Notices::OfProcesses;
        let request = Request { times, times_later, is_guess, ..self.options.request(targets.clone()) };
        self.start(&request, notices, observer)
    }

    /// Starts a session without delays.
    fn start(
        &self,
        request: &Request,
        notices: Notices,
        observer: &mut dyn Observer,
    ) -> Result<SweepSession, SweepError> {
        let mut prepared = self.prepared(request)?;
        // Sweeps ignore the delays of the targets file.
        let places: Vec<TargetIndex> = prepared.targets.iter().map(|(index, _)| index).collect();
        for index in &places {
            prepared.settings.policies.set(&Selection::Target(*index), NOTHING)?;
        }
        prepared.notices.retain(|notice| notices.has(notice));
        if !prepared.notices.is_empty() {
            observer.notices(&prepared.notices);
        }
        let handle = prepared.start(self.quit.next_stop())?;
        tracing::info!("the sweep has begun a session of {} targets", places.len());
        Ok(SweepSession { handle, places })
    }

    /// Prepares a session. Reading files of processes may take long, and nothing is attached in that time. So
    /// the sweep does not wait for the preparation once `quit` is asked.
    fn prepared(&self, request: &Request) -> Result<Prepared, SweepError> {
        let (processes, request) = (self.processes.to_vec(), request.clone());
        let known = self.known.clone();
        let prepare = move || Prepared::of_processes_knowing(&processes, &request, Purpose::Attach, &known);
        let thread = thread::Builder::new().name("preparation".to_owned()).spawn(prepare);
        let thread = thread.map_err(SweepError::system("cannot start a thread"))?;
        while !thread.is_finished() {
            if self.quit.is_asked() {
                return Err(SweepError::Stopped);
            }
            thread::sleep(WANTED);
        }
        Ok(thread.join().map_err(|_| SweepError::Panicked)??)
    }
}

impl SweepSession {
    /// The functions that the first `targets` targets of the sweep select; none if the counters cannot be
    /// read.
    pub(super) fn functions_of(&self, targets: usize) -> Vec<SelectedFunction> {
        let Ok(snapshot) = self.handle.snapshot() else { return Vec::new() };
        let places = self.places.get(..targets).unwrap_or_default();
        let is_of = |function: &&SelectedFunction| places.contains(&function.target);
        snapshot.known.iter().map(|(_, function)| function).filter(is_of).cloned().collect()
    }

    /// Changes the session to exactly these targets, and switches timing.
    pub(super) fn change(
        &mut self,
        context: &Context<'_>,
        targets: &TargetSource,
        times: bool,
    ) -> Result<(), SweepError> {
        let controls = self.handle.controls();
        let wanted = controls.decide_kinds(targets.read(false).map_err(PrepareError::from)?)?;
        let request = Request { times, ..context.options.request(targets.clone()) };
        times::check(&request, &wanted)?;
        let (change, _) = controls.targets().change_to(&wanted);
        if !change.add.is_empty() || !change.drop.is_empty() {
            controls.change_targets(change)?;
        }
        controls.time_calls(times)?;
        self.places = places(controls, &wanted);
        Ok(())
    }

    /// Switches timing of calls on or off.
    ///
    /// # Errors
    /// The session is over, or cannot time calls.
    pub(super) fn time_calls(&self, times: bool) -> Result<(), SweepError> {
        match self.handle.controls().time_calls(times) {
            Err(SessionError::Over) => {
                let outcome = self.handle.wait()?;
                let why = outcome.ended.map_or_else(|error| error.to_string(), |why| why.to_string());
                Err(SweepError::Subject(SubjectError::Over(why)))
            }
            timed => Ok(timed?),
        }
    }
}

/// The places of these targets in a session that has exactly these targets.
fn places(controls: &Controls, wanted: &Targets) -> Vec<TargetIndex> {
    let of_session = controls.targets();
    let mut left: Vec<_> = of_session.iter().filter(|(_, of)| !of.is_dropped).collect();
    let place = |(_, target): (TargetIndex, &Target)| {
        let is_it = |(_, of): &(TargetIndex, &Target)| {
            (of.kind, &of.pattern, &of.caller) == (target.kind, &target.pattern, &target.caller)
        };
        let position = left.iter().position(is_it)?;
        Some(left.remove(position).0)
    };
    wanted.iter().filter_map(place).collect()
}
