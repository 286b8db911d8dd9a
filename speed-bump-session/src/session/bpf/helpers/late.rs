//! Helpers for processes that are covered already: children that execute an interpreter, and programs that
//! load one late.
//!
//! An interpreter that has only just been mapped may not let the helper in yet: it is tried for some seconds.

use std::time::{Duration, Instant};

use super::GivenUp;
use crate::{
    inject::InjectError,
    presence::PresenceError,
    probe::plan::PythonPlan,
    process::Process,
    python::helper::Room,
    session::{
        SessionError,
        bpf::{
            BpfSession,
            follower::PythonFollower,
            links::TargetSites,
            phase::{HelperId, HelperPhase, LateJoin},
        },
    },
    units::Pid,
};

/// How long an interpreter that a child has just executed may take until the helper can work in it.
const STARTING: Duration = Duration::from_secs(5);
/// How often that is tried.
const TRY_EVERY: Duration = Duration::from_millis(25);
/// Room for children, while there is enough for all and when there is not.
pub(in crate::session::bpf) const CHILD_ROOMS: [Room; 3] = [Room::CHILD, Room::SMALL, Room::LEAST];

impl BpfSession {
    /// Brings the helper into a process that is covered already, as soon as its interpreter allows.
    pub(in crate::session::bpf) fn join_later(&mut self, pid: Pid) {
        if self.helpers.setup().is_none() {
            return;
        }
        self.stop_following(pid);
        let now = Instant::now();
        if let Some(covered) = self.processes.get_mut(pid)
            && matches!(covered.helper, HelperPhase::Absent)
        {
            covered.helper = HelperPhase::Joining(LateJoin { since: now, next: now, way: None });
        }
    }

    /// Takes up how far the helper has come that is brought into this process, if one is.
    pub(super) fn poll_joining(&mut self, pid: Pid) -> Result<(), SessionError> {
        let Some(covered) = self.processes.get_mut(pid) else { return Ok(()) };
        if !matches!(covered.helper, HelperPhase::Joining(_)) {
            return Ok(());
        }
        let is_alive = covered.process.is_alive();
        let HelperPhase::Joining(mut late) = std::mem::take(&mut covered.helper) else { return Ok(()) };
        if !is_alive {
            self.give_up(pid, late);
            return Ok(());
        }
        match late.way.take() {
            None if Instant::now() >= late.next && !self.helpers.is_giving_up(pid) => {
                let Some(own) = Process::open(pid).ok() else { return Ok(()) };
                late.way = Some(self.begin_join(&own, own.program()?, &CHILD_ROOMS)?);
            }
            Some((joining, range)) if joining.is_finished() => {
                return match joining.finish() {
                    Ok(presence) => {
                        let id = self.take_in(presence, range);
                        self.attach_stub(pid, id)
                    }
                    Err(error) => {
                        self.context.give_back(range);
                        self.joined_not(pid, late, &error)
                    }
                };
            }
            way => late.way = way,
        }
        self.set_joining(pid, late);
        Ok(())
    }

    fn set_joining(&mut self, pid: Pid, late: LateJoin) {
        match self.processes.get_mut(pid) {
            Some(covered) => covered.helper = HelperPhase::Joining(late),
            None => self.give_up(pid, late),
        }
    }

    /// The helper is not to come into this process any more. One that is on its way gets there first, and
    /// leaves.
    pub(in crate::session::bpf) fn give_up(&mut self, pid: Pid, late: LateJoin) {
        if let Some((joining, range)) = late.way {
            self.helpers.given_up.push(GivenUp { pid, joining, range });
        }
    }

    /// Gives the numbers back of helpers that were given up and have come to the end of their way.
    pub(super) fn poll_given_up(&mut self) {
        let is_over = |given_up: &mut GivenUp| given_up.joining.is_finished();
        for GivenUp { joining, range, .. } in
            self.helpers.given_up.extract_if(.., is_over).collect::<Vec<_>>()
        {
            // Dropping what came sends it away.
            drop(joining);
            self.context.give_back(range);
        }
    }

    /// A helper could not be brought into a child: an interpreter that starts may let it in later.
    fn joined_not(&mut self, pid: Pid, late: LateJoin, error: &PresenceError) -> Result<(), SessionError> {
        // A helper that has still to leave comes first, however long that takes.
        let is_leaving = matches!(error, PresenceError::Inject(InjectError::Leaving { .. }));
        if is_leaving || late.since.elapsed() < STARTING {
            tracing::debug!("the helper is not in process {pid} yet: {error}");
            let next = Instant::now() + TRY_EVERY;
            self.set_joining(pid, LateJoin { next, ..late });
            return Ok(());
        }
        let Some(covered) = self.processes.get(pid) else { return Ok(()) };
        let plan = self.context.resolver.plan_without_helper(&covered.process, &error.to_string())?;
        if let PythonPlan::Impossible(why) = &plan.python {
            return Err(SessionError::Python(why.clone()));
        }
        let groups = self.enter_plan(&plan)?;
        let Some(covered) = self.processes.get_mut(pid) else { return Ok(()) };
        covered.python = PythonFollower::new(&covered.process, &plan, &self.room);
        self.attach_more(pid, groups)
    }

    fn attach_stub(&mut self, pid: Pid, id: HelperId) -> Result<(), SessionError> {
        let Some(covered) = self.processes.get_mut(pid) else { return Ok(()) };
        covered.helper = HelperPhase::In(id);
        let groups = self.stub_of(id)?.map(TargetSites::of_all).into_iter().collect();
        self.attach_more(pid, groups)?;
        tracing::debug!("the helper is in child {pid}");
        self.listen_to(id);
        Ok(())
    }
}
