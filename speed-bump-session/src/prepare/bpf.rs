//! Plans of what the BPF programs do in each process.

use std::{collections::BTreeSet, ffi::OsString, sync::Arc};

use super::{
    PrepareError, Prepared, Purpose, Request, capabilities,
    costs::{SessionCosts, likely_kinds, may_add_probes},
    delays, first_policies,
    look::Planned,
    notice::Notice,
    settings, times, unselected,
};
use crate::{
    engine::EngineKind,
    kernel::TaskOffsets,
    policy::PolicyTable,
    probe::{
        plan::{Plan, PythonPlan},
        resolve::{KnownFunctions, Resolver, kinds},
        site::SiteKind,
    },
    process::{Process, ProcessError},
    python::main_file,
    session::{SessionError, Settings, bpf::BpfSession, handle::Handle, stop::Stop},
    targets::{TargetIndex, Targets},
};

/// The processes, each with the functions that targets select in it.
pub struct BpfPlans {
    /// Resolves targets in processes that come later, such as children that call `exec`.
    pub resolver: Resolver,
    /// Empty for a command that has not been started.
    pub processes: Vec<(Process, Plan)>,
    /// Whether descendants of these processes have Python functions that we can make visible. `false` if we
    /// did not check this.
    pub python_in_children: bool,
}

impl BpfPlans {
    /// Measures what probes cost, and makes the plans.
    pub(super) fn of_processes(
        processes: Vec<Process>,
        request: &Request,
        targets: &Arc<Targets>,
        policies: &PolicyTable,
        purpose: Purpose,
        known: &KnownFunctions,
    ) -> Result<(Self, Vec<Notice>), PrepareError> {
        let (costs, resolver) = SessionCosts::begin(request, targets, policies)?;
        let mut resolver = resolver.knowing(known);
        if purpose == Purpose::Attach {
            TaskOffsets::read_ahead();
        }
        let mut notices = Vec::new();
        let mut planned = Vec::with_capacity(processes.len());
        for process in processes {
            let plan = resolver.plan(&process)?;
            let mut process = Planned::new(process, plan);
            if purpose == Purpose::List && process.plan.wants_helper() {
                notices.extend(process.look_inside(request.inject_timeout, &resolver)?);
            }
            planned.push(process);
        }
        let named = planned.len();
        if request.children && unselected::is_any(&resolver, &planned, purpose) {
            notices.extend(add_descendants(request, &resolver, &mut planned, purpose));
        }
        notices.extend(unselected::notices(request.strict, &resolver, &planned, purpose)?);
        let python_in_children = planned.iter().skip(named).any(|of| of.plan.has_python());
        if purpose == Purpose::Attach {
            // The session finds descendants again when it begins.
            planned.truncate(named);
        }
        costs.finish(request, policies, &kinds(request, policies, &planned), &mut resolver)?;
        notices.extend(delays::notices(policies, &resolver, &planned));
        notices.extend(times::of_kernel(request, &resolver));
        notices.extend(times::of_processes(request, &planned));
        let processes = planned.into_iter().map(|planned| (planned.process, planned.plan)).collect();
        Ok((Self { resolver, processes, python_in_children }, notices))
    }

    pub(super) fn start(self, settings: Settings, stop: Stop) -> Result<Handle, SessionError> {
        let Self { resolver, processes, .. } = self;
        Handle::start(move |stop| BpfSession::start(resolver, settings, processes, stop), stop)
    }

    /// Which engine will spin the delay of a target in a process with this plan.
    pub fn engine(&self, policies: &PolicyTable, target: TargetIndex, plan: &Plan) -> EngineKind {
        delays::engine(policies, target, plan, &self.resolver)
    }
}

/// What we know before a command starts.
pub struct PreparedCommand {
    /// Resolves targets in the processes of the command.
    pub resolver: Resolver,
    /// What the session does, and how.
    pub settings: Settings,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

impl Prepared {
    /// Like [`Prepared::of_processes`], for a command that has not been started: prepares what needs no
    /// process.
    ///
    /// # Errors
    /// See [`PrepareError`].
    pub fn of_command(request: &Request, command: &[OsString]) -> Result<PreparedCommand, PrepareError> {
        capabilities::check_command(request.engine)?;
        let targets = kinds::decide_for_command(request.targets.read(request.allow_empty)?);
        let targets = targets.with_main_files(&main_file::for_command(command));
        let (targets, policies, mut notices) = first_policies(request, targets)?;
        let (costs, mut resolver) = SessionCosts::begin(request, &targets, &policies)?;
        costs.finish(request, &policies, &likely_kinds(request, &targets, &policies), &mut resolver)?;
        notices.extend(delays::notices(&policies, &resolver, &[]));
        notices.extend(times::of_kernel(request, &resolver));
        Ok(PreparedCommand { resolver, settings: settings(request, policies), notices })
    }
}

/// The kinds of probe sites that the session will use. These are all kinds if we may add probes later, and
/// otherwise the kinds in the plans.
fn kinds(request: &Request, policies: &PolicyTable, planned: &[Planned]) -> BTreeSet<SiteKind> {
    if may_add_probes(request) {
        return SiteKind::ALL.into();
    }
    let by_programs = !policies.choice().delays_in_helper();
    let plans = || planned.iter().map(|of| &of.plan);
    let sites = plans().flat_map(|plan| &plan.sites).map(|site| site.kind);
    let stubs = plans().filter_map(|plan| match plan.python {
        PythonPlan::Source { stub, .. } => stub.filter(|_| by_programs),
        PythonPlan::NotAsked | PythonPlan::Impossible(_) => None,
    });
    let exits = plans().flat_map(|plan| &plan.sites).flat_map(|site| site.timing.exits());
    sites.chain(stubs).chain(exits.map(|exit| exit.kind)).collect()
}

/// Adds the descendants, because the session will cover them too. Leaves out descendants that have ended or
/// that we cannot read.
fn add_descendants(
    request: &Request,
    resolver: &Resolver,
    planned: &mut Vec<Planned>,
    purpose: Purpose,
) -> Vec<Notice> {
    let mut notices = Vec::new();
    let found = planned.iter().filter_map(|of| of.process.descendants().ok());
    let descendants: Vec<Process> = found.flat_map(|found| found.processes).collect();
    for process in descendants {
        let pid = process.pid();
        if planned.iter().any(|of| of.process.pid() == pid) {
            continue;
        }
        let add = || {
            let plan = resolver.plan(&process)?;
            let mut of = Planned::new(process, plan);
            if purpose == Purpose::List && of.plan.wants_helper() {
                notices.extend(of.look_inside(request.inject_timeout, resolver)?);
            }
            planned.push(of);
            Ok::<_, ProcessError>(())
        };
        if let Err(error) = add() {
            tracing::debug!("descendant {pid} is left out: {error}");
        }
    }
    notices
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::targets::source::TargetSource;

    #[test]
    fn all_costs_are_checked_where_native_targets_may_be_added() {
        let mut request = Request::new(TargetSource::lines("targets", &["py:*/calls.py:slow"]));
        let targets = request.targets.read(false).unwrap().decide(|_| false);
        let policies = PolicyTable::new(&targets, request.default, request.engine);
        assert_eq!(kinds(&request, &policies, &[]), BTreeSet::new());
        request.times_later = true;
        assert_eq!(kinds(&request, &policies, &[]), BTreeSet::from(SiteKind::ALL));
    }
}
