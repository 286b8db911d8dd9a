//! Helpers that go: each with the last of its processes, and all at the end of the session.

use std::{thread, time::Instant};

use super::{AtWork, LOOK_EVERY};
use crate::{
    presence::LEAVING_PATIENCE,
    process::Process,
    session::bpf::{
        BpfSession,
        phase::{HelperId, HelperPhase},
    },
};

impl BpfSession {
    /// Without the process that a helper was brought into, nobody tells those forked from it that the session
    /// is over.
    fn end_for_orphans(&mut self, id: HelperId) {
        let Some(at_work) = self.helpers.at_work.get(&id) else { return };
        let owner = self.processes.get(at_work.owner);
        let is_there = owner.is_some_and(|owner| owner.helper.id() == Some(id) && owner.process.is_alive());
        if at_work.is_covered
            && !is_there
            && let Err(error) = at_work.presence.block.end()
        {
            tracing::debug!("children of process {} are not told of the end: {error}", at_work.owner);
        }
    }

    /// A process with this helper was let go. With the last one it goes.
    pub(in crate::session::bpf) fn release_helper(&mut self, id: HelperId) {
        if self.processes.iter().any(|(_, covered)| covered.helper.id() == Some(id)) {
            return;
        }
        self.listen_to(id);
        self.end_for_orphans(id);
        if let Some(at_work) = self.helpers.at_work.remove(&id) {
            self.context.give_back(at_work.range);
        }
    }

    /// Sends all helpers away and waits for them a little: while they undo what they did, the probes count
    /// on. Who asks again to stop ends the wait.
    pub(in crate::session::bpf) fn send_helpers_away(&mut self) {
        // On their way in, they must arrive before they can leave.
        for (_, covered) in self.processes.iter_mut() {
            if matches!(covered.helper, HelperPhase::Joining(_)) {
                covered.helper = HelperPhase::Absent;
            }
        }
        self.helpers.given_up.clear();
        for at_work in self.helpers.at_work.values() {
            at_work.presence.leave();
        }
        for id in self.helpers.at_work.keys().copied().collect::<Vec<_>>() {
            self.end_for_orphans(id);
        }
        let stop = self.context.state.stop.clone();
        let (before, began) = (stop.times(), Instant::now());
        let late = |session: &Self| {
            let still_there = |at_work: &&AtWork| {
                // It may not have been covered yet.
                let is_alive = match session.processes.get(at_work.owner) {
                    Some(owner) => owner.process.is_alive(),
                    None => Process::open(at_work.owner).is_ok_and(|owner| owner.is_alive()),
                };
                !at_work.presence.has_left() && is_alive
            };
            session
                .helpers
                .at_work
                .values()
                .filter(still_there)
                .map(|at_work| at_work.owner)
                .collect::<Vec<_>>()
        };
        while !late(self).is_empty() && began.elapsed() < LEAVING_PATIENCE && stop.times() == before {
            thread::sleep(LOOK_EVERY);
        }
        for owner in late(self) {
            self.context.warn(format!(
                "process {owner}: the helper had not left after {:?}, as the interpreter did not let it run; \
                 it leaves as soon as it can",
                began.elapsed()
            ));
        }
        for id in self.helpers.at_work.keys().copied().collect::<Vec<_>>() {
            self.listen_to(id);
        }
        tracing::info!("helpers left in {:?}", began.elapsed());
    }
}
