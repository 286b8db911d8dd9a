//! How helpers leave: each together with the last of its processes, and all at the end of the session.

use std::{thread, time::Instant};

use super::{Helpers, LOOK_EVERY, at_work::AtWork};
use crate::{
    presence::LEAVING_PATIENCE,
    process::Process,
    session::bpf::{
        context::Context,
        handshake::end_signals,
        phase::{HelperId, HelperPhase, Processes},
    },
    units::Pid,
};

impl AtWork {
    /// Ends the session in the processes that were forked from the owner, if the owner has ended: no other
    /// code tells these processes.
    fn end_for_orphans(&self, id: HelperId, processes: &Processes) {
        let owner = processes.get(self.owner);
        let is_there = owner.is_some_and(|owner| owner.helper.id() == Some(id) && owner.process.is_alive());
        if self.is_covered
            && !is_there
            && let Err(error) = self.presence.block.end()
        {
            tracing::debug!("children of process {} are not told of the end: {error}", self.owner);
        }
    }

    /// Whether the helper should have left and has not.
    fn is_late(&self, processes: &Processes) -> bool {
        // Perhaps the session did not yet cover the helper's process.
        let is_alive = match processes.get(self.owner) {
            Some(owner) => owner.process.is_alive(),
            None => Process::open(self.owner).is_ok_and(|owner| owner.is_alive()),
        };
        !self.presence.has_left() && is_alive
    }
}

impl Helpers {
    /// The session no longer covers a process with this helper. The helper leaves with the last of its
    /// processes.
    pub(in crate::session::bpf) fn release(
        &mut self,
        id: HelperId,
        processes: &Processes,
        context: &mut Context,
    ) {
        if processes.iter().any(|(_, covered)| covered.helper.id() == Some(id)) {
            return;
        }
        self.listen_to(id, context);
        if let Some(at_work) = self.at_work.remove(&id) {
            at_work.end_for_orphans(id, processes);
            // The block still exists here, so the report gets the range's counts.
            context.give_back(at_work.range);
        }
    }

    /// Stops sending signals. When no signal is pending in a process, the process's helper may restore the
    /// handlers.
    pub(in crate::session::bpf) fn end_signals(&mut self, processes: &mut Processes) {
        let Some(sent) = self.signals.as_ref().and_then(|signals| signals.sent()) else { return };
        // When the links are gone, the programs are gone, too. After that, no thread is in a program any
        // more.
        for (_, covered) in processes.iter_mut() {
            covered.attachments.clear();
        }
        self.leave_stubs();
        end_signals(sent, &self.blocks());
    }

    /// Removes the probes from the helpers' stubs.
    pub(in crate::session::bpf) fn leave_stubs(&mut self) {
        for at_work in self.at_work.values_mut() {
            at_work.of_family = None;
        }
    }

    /// Makes all helpers leave, and waits for them for a limited time. Probes go on counting meanwhile. A
    /// second request to stop ends the wait.
    pub(in crate::session::bpf) fn send_away(&mut self, processes: &mut Processes, context: &mut Context) {
        // We must wait until helpers are loaded before we can make them leave.
        for (_, covered) in processes.iter_mut() {
            if matches!(covered.helper, HelperPhase::Joining(_)) {
                covered.helper = HelperPhase::Absent;
            }
        }
        self.given_up.clear();
        for at_work in self.at_work.values() {
            at_work.presence.leave();
        }
        for (id, at_work) in &self.at_work {
            at_work.end_for_orphans(*id, processes);
        }
        let stop = context.state.stop.clone();
        let (before, began) = (stop.times(), Instant::now());
        while !self.late(processes).is_empty() && began.elapsed() < LEAVING_PATIENCE && stop.times() == before
        {
            thread::sleep(LOOK_EVERY);
        }
        for owner in self.late(processes) {
            context.warn(format!(
                "process {owner}: the helper had not left after {:?}, as the interpreter did not let it run; \
                 it leaves as soon as it can",
                began.elapsed()
            ));
        }
        self.listen(context);
        tracing::info!("helpers left in {:?}", began.elapsed());
    }

    /// The processes whose helpers have not left yet.
    fn late(&self, processes: &Processes) -> Vec<Pid> {
        let late = self.at_work.values().filter(|at_work| at_work.is_late(processes));
        late.map(|at_work| at_work.owner).collect()
    }
}
