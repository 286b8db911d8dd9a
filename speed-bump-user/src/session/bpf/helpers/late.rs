//! Helpers for processes that are covered already: children that execute an interpreter, and programs that
//! load one late.
//!
//! An interpreter that has only just been mapped may not let the helper in yet: it is tried for some seconds.

use std::time::{Duration, Instant};

use super::HelperId;
use crate::{
    presence::{Joining, PresenceError},
    probe::plan::PythonPlan,
    process::Process,
    python::helper::Room,
    session::{
        SessionError,
        bpf::{BpfSession, python::PythonFollower},
        functions::FunctionRange,
    },
    units::Pid,
};

/// How long an interpreter that a child has just executed may take until the helper can work in it.
const STARTING: Duration = Duration::from_secs(5);
/// How often that is tried.
const TRY_EVERY: Duration = Duration::from_millis(25);
/// Room for children, while there is enough for all and when there is not.
pub(in crate::session::bpf) const CHILD_ROOMS: [Room; 3] =
    [Room::CHILD, Room { functions: 1_024 }, Room { functions: 256 }];

/// A helper on its way into a process that is covered already.
#[derive(Debug)]
pub(super) struct LateJoin {
    since: Instant,
    next: Instant,
    way: Option<(Joining, FunctionRange)>,
}

impl BpfSession {
    /// Brings the helper into a process that is covered already, as soon as its interpreter allows.
    pub(in crate::session::bpf) fn join_later(&mut self, pid: Pid) {
        if self.helpers.terms.is_some() {
            self.stop_following(pid);
            let now = Instant::now();
            self.helpers.joining.entry(pid).or_insert(LateJoin { since: now, next: now, way: None });
        }
    }

    /// A process has another image now, which needs no late helper. Waits until the one on its way has given
    /// up.
    pub(in crate::session::bpf) fn join_no_more(&mut self, pid: Pid) {
        let way = self.helpers.joining.remove(&pid).and_then(|late| late.way);
        if let Some((joining, range)) = way {
            drop(joining);
            self.functions_of_nobody(range);
        }
    }

    pub(super) fn poll_joining(&mut self, pid: Pid) -> Result<(), SessionError> {
        let Some(mut late) = self.helpers.joining.remove(&pid) else { return Ok(()) };
        if !self.covered.get(&pid).is_some_and(|covered| covered.process.is_alive()) {
            if let Some((joining, range)) = late.way {
                drop(joining);
                self.functions_of_nobody(range);
            }
            return Ok(());
        }
        match late.way.take() {
            None if Instant::now() >= late.next => {
                let Some(own) = Process::open(pid).ok() else { return Ok(()) };
                late.way = Some(self.begin_join(&own, own.program()?, &CHILD_ROOMS)?);
                self.helpers.joining.insert(pid, late);
            }
            Some((joining, range)) if joining.is_finished() => match joining.finish() {
                Ok(presence) => {
                    let id = self.take_in(presence, range);
                    self.attach_stub(pid, id)?;
                }
                Err(error) => {
                    self.functions_of_nobody(range);
                    self.joined_not(pid, late, &error)?;
                }
            },
            way => {
                late.way = way;
                self.helpers.joining.insert(pid, late);
            }
        }
        Ok(())
    }

    /// A helper could not be brought into a child: an interpreter that starts may let it in later.
    fn joined_not(&mut self, pid: Pid, late: LateJoin, error: &PresenceError) -> Result<(), SessionError> {
        if late.since.elapsed() < STARTING {
            tracing::debug!("the helper is not in process {pid} yet: {error}");
            let next = Instant::now() + TRY_EVERY;
            self.helpers.joining.insert(pid, LateJoin { next, ..late });
            return Ok(());
        }
        let Some(covered) = self.covered.get(&pid) else { return Ok(()) };
        let plan = self.resolver.plan_without_helper(&covered.process, &error.to_string())?;
        if let PythonPlan::Impossible(why) = &plan.python {
            return Err(SessionError::Python(why.clone()));
        }
        let groups = self.enter_plan(&plan)?;
        let Some(covered) = self.covered.get_mut(&pid) else { return Ok(()) };
        covered.python = PythonFollower::new(&covered.process, &plan, &self.room);
        self.attach_more(pid, groups)
    }

    fn attach_stub(&mut self, pid: Pid, id: HelperId) -> Result<(), SessionError> {
        let Some(covered) = self.covered.get_mut(&pid) else { return Ok(()) };
        covered.helper = Some(id);
        let groups = self.stub_of(id)?.into_iter().collect();
        self.attach_more(pid, groups)?;
        tracing::debug!("the helper is in child {pid}");
        self.listen_to(id);
        Ok(())
    }
}
