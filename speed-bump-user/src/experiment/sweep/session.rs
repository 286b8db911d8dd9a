//! Sessions of a sweep: they begin without delays, and as soon as they are not wanted any more, they do not.

use std::{thread, time::Duration};

use super::{error::SweepError, observer::Observer, options::Options};
use crate::{
    experiment::live::NOTHING,
    policy::Selection,
    prepare::{Prepared, Purpose, Request, notice::Notice},
    probe::resolve::KnownFunctions,
    session::{handle::Handle, quit::Quit},
    targets::TargetIndex,
    units::Pid,
};

/// So often it is looked whether preparation is still wanted.
const WANTED: Duration = Duration::from_millis(10);

/// What all parts of a sweep know.
pub(super) struct Context<'a> {
    pub(super) options: &'a Options,
    pub(super) processes: &'a [Pid],
    pub(super) quit: &'a Quit,
    /// What was read of files, for all sessions.
    pub(super) known: KnownFunctions,
}

/// Whether a session tells what is to be known of its targets. Later ones have nothing new to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notices {
    Told,
    Known,
}

impl Context<'_> {
    /// Starts a session without delays.
    pub(super) fn start(
        &self,
        request: &Request,
        notices: Notices,
        observer: &mut dyn Observer,
    ) -> Result<Handle, SweepError> {
        let mut prepared = self.prepared(request)?;
        // What the targets file says of delays is for other sessions.
        let targets: Vec<TargetIndex> = prepared.targets.iter().map(|(index, _)| index).collect();
        for index in targets {
            prepared.settings.policies.set(&Selection::Target(index), NOTHING)?;
        }
        let is_told = |notice: &Notice| {
            notices == Notices::Told
                && !matches!(notice, Notice::BelowFloor { .. } | Notice::BelowColdFloor { .. })
        };
        prepared.notices.retain(is_told);
        if !prepared.notices.is_empty() {
            observer.notices(&prepared.notices);
        }
        Ok(prepared.start(self.quit.next_stop())?)
    }

    /// What a session begins with. Files of processes may take long to read, and nothing is attached
    /// meanwhile: so preparation is not waited for once the end is asked for.
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
