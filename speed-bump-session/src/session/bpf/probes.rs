//! The engine `bpf` in a session: its probe sites, their links, and the functions that its programs report.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use speed_bump_abi::{NO_FUNCTION, PythonKey, SiteArguments};

use super::{
    callers::{Callers, functions, is_another_line, lines},
    context::Context,
    follower::{PythonFollower, Rooms},
    links::{Attached, TargetSites, are_apart},
    locations::Locations,
    perf_maps::{self, PerfMaps},
    phase::Processes,
    sites::{SiteKey, SiteTable, costs},
    timing::{EntrySite, Exits, native_untimed, overhead_ns, way_ns},
    window::Window,
};
use crate::{
    engine::bpf::{BpfEngine, Capacity, UprobeProgram},
    presence::Presence,
    probe::{
        attach::{self, AttachError, AttachSite, RefusedSite, SiteGroup},
        file::FileId,
        plan::{CallerCode, Plan, Timing},
    },
    process::Process,
    session::{error::SessionError, functions::FunctionRange, state::State},
    stats::times::not_timed,
    targets::TargetIndex,
    units::Pid,
};

/// Sites with one program, of one file; and the target or the called function that they are for, if it is the
/// only one.
type GroupKey = (FileId, UprobeProgram, Option<TargetIndex>, Option<u32>);

/// The engine `bpf` with its probe sites.
pub(super) struct Probes {
    pub(super) engine: BpfEngine,
    sites: SiteTable,
    exits: Exits,
    callers: Callers,
    /// Room that the followers of all processes share.
    room: Rooms,
    perf_maps: PerfMaps,
    locations: Locations,
}

impl Probes {
    /// Takes a loaded engine that has this capacity. `times` says whether the session times native calls from
    /// the start, where possible.
    pub(super) fn new(engine: BpfEngine, capacity: &Capacity, times: bool) -> Self {
        Self {
            engine,
            sites: SiteTable::new(capacity.sites),
            exits: Exits::new(times),
            callers: Callers::new(capacity.called),
            room: Rooms::default(),
            perf_maps: PerfMaps::default(),
            locations: Locations::default(),
        }
    }

    /// Gives the functions and sites of a plan their indices, and tells the engine about new ones. `is_late`
    /// says that we did not know the process when we prepared the session.
    ///
    /// # Errors
    /// There is no room for the functions or sites.
    pub(super) fn enter_plan(
        &mut self,
        plan: &Plan,
        is_late: bool,
        context: &mut Context,
    ) -> Result<Vec<TargetSites>, SessionError> {
        let mut indices = Vec::with_capacity(plan.functions.len());
        for function in &plan.functions {
            indices.push(context.state.doses().enter(&function.selected)?);
        }
        let apart = are_apart(plan.functions.iter().map(|function| function.selected.target));
        let of_callers = plan.sites.iter().filter(|site| site.caller.is_some());
        let called_apart = are_apart(of_callers.map(|site| (site.file.id(), site.offset)));
        let mut groups: BTreeMap<GroupKey, SiteGroup> = BTreeMap::new();
        let mut untimed = Vec::new();
        for (at, site) in plan.sites.iter().enumerate() {
            let of = site.function.and_then(|position| plan.functions.get(position));
            if let Some(function) = of {
                context.note_entry(function.selected.target, function.entry, site.kind);
            }
            if is_another_line(plan, at) {
                continue;
            }
            let mut entry = self.entry(plan, at, &indices)?;
            let (index, new) = self.sites.enter(site, entry.function)?;
            entry.index = index;
            if new {
                let costs = costs(&context.resolver, &mut self.engine)?;
                let arguments = SiteArguments {
                    function: entry.function,
                    overhead_ns: overhead_ns(costs, site.kind),
                    way_ns: self.exits.remembered(index, way_ns(costs, site)),
                    stack_delta: site.stack_delta,
                    callers: entry.callers(),
                    arguments: site.arguments,
                    ..SiteArguments::default()
                };
                self.engine.set_site(index, arguments)?;
            }
            let target = of.map(|function| function.selected.target);
            let target = target.filter(|_| apart && entry.called.is_none());
            let called = entry.called.filter(|_| called_apart);
            let mut add = |program, sites: Vec<AttachSite>| {
                let key = (site.file.id(), program, target, called);
                let group = groups.entry(key).or_insert_with(|| SiteGroup {
                    file: Arc::clone(&site.file),
                    program,
                    sites: Vec::new(),
                });
                group.sites.extend(sites);
            };
            if let (true, Some(planned), Timing::Impossible(why)) = (new, of, &site.timing) {
                untimed.push((&planned.selected, why.as_str()));
            }
            let at = AttachSite { offset: site.offset, semaphore: site.semaphore, site: index };
            add(site.program, vec![at]);
            let exits = self.exits.enter(&entry, &mut self.sites, &mut self.engine, &context.resolver)?;
            if !exits.is_empty() {
                add(UprobeProgram::SiteLeft, exits);
            }
        }
        // For earlier processes, we told the user before the session began.
        if is_late {
            not_timed(untimed.into_iter()).into_iter().for_each(|text| context.warn(text));
        }
        let sites =
            groups.into_iter().map(|((.., target, called), group)| TargetSites { target, called, group });
        Ok(sites.collect())
    }

    /// Returns what calls at a site of a plan count as. `indices` are those of the plan's functions.
    fn entry<'a>(
        &mut self,
        plan: &'a Plan,
        at: usize,
        indices: &[u32],
    ) -> Result<EntrySite<'a>, SessionError> {
        let planned = plan.sites.get(at).ok_or(SessionError::WithoutProbes)?;
        let selected = planned.function.and_then(|position| plan.functions.get(position));
        let selected = selected.map(|function| &function.selected);
        let function = planned.function.and_then(|position| indices.get(position).copied());
        let entry = EntrySite {
            planned,
            index: 0,
            function: function.unwrap_or(NO_FUNCTION),
            functions: function.into_iter().collect(),
            called: None,
            selected,
        };
        if planned.caller.is_none() {
            // Its target is for all calls now: none may count twice.
            self.callers.retire(planned, self.engine.callers())?;
            return Ok(entry);
        }
        let lines = lines(plan, at, indices);
        let called = self.callers.enter(planned, lines, self.engine.callers())?;
        Ok(EntrySite { function: NO_FUNCTION, functions: functions(&lines), called: Some(called), ..entry })
    }

    /// Sets the code of the callers that native targets name, in the process with this PID and index. `None`:
    /// no target needs it.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn set_callers(
        &mut self,
        process: (Pid, u32),
        callers: Option<&CallerCode>,
    ) -> Result<(), SessionError> {
        match callers {
            Some(callers) => self.callers.set(process, &callers.ranges, self.engine.callers()),
            None => {
                self.callers.remove(process.0, self.engine.callers());
                Ok(())
            }
        }
    }

    /// Notes that targets are about to change.
    pub(super) fn begin_change(&mut self) {
        self.callers.begin_change();
    }

    /// Notes that targets have changed. Removes the probes of functions that only had targets for some
    /// callers, and now have no target.
    pub(super) fn end_change(&mut self, processes: &mut Processes) {
        let unselected = self.callers.end_change(self.engine.callers());
        let is_left = |called: Option<u32>| called.is_none_or(|called| !unselected.contains(&called));
        for (_, covered) in processes.iter_mut().filter(|_| !unselected.is_empty()) {
            covered.attachments.retain(|attached| is_left(attached.called));
            covered.groups.retain(|sites| is_left(sites.called));
        }
    }

    /// The probe on a helper's stub. This probe serves a range of functions.
    ///
    /// # Errors
    /// There is no room for the probe.
    pub(super) fn enter_stub(
        &mut self,
        presence: &Presence,
        range: FunctionRange,
        context: &Context,
    ) -> Result<SiteGroup, SessionError> {
        let key = SiteKey {
            file: presence.file.identity(),
            offset: presence.offset,
            semaphore: None,
            program: UprobeProgram::PythonHelper,
            function: range.first,
        };
        let (site, new) = self.sites.enter_key(key)?;
        if new {
            let costs = costs(&context.resolver, &mut self.engine)?;
            let arguments = SiteArguments {
                function: range.first,
                overhead_ns: overhead_ns(costs, presence.stub),
                functions: range.count,
                tick_ns: context.resolver.costs().tick_ns(),
                block: presence.block.number(),
                ..SiteArguments::default()
            };
            self.engine.set_site(site, arguments)?;
        }
        Ok(SiteGroup {
            file: presence.file.clone(),
            program: UprobeProgram::PythonHelper,
            sites: vec![AttachSite { offset: presence.offset, semaphore: None, site }],
        })
    }

    /// Attaches to sites of a process. `process` is the index of the process.
    ///
    /// # Errors
    /// None of the sites is attached.
    pub(super) fn attach(
        &self,
        pid: Pid,
        process: u32,
        sites: &[TargetSites],
        window: &Window,
    ) -> Result<(Vec<Attached>, Vec<RefusedSite>), AttachError> {
        // Attaches exits first, so that we see the end of every counted call.
        let mut by_target: BTreeMap<_, Vec<SiteGroup>> = BTreeMap::new();
        for TargetSites { target, called, group } in sites {
            let is_exits = group.program == UprobeProgram::SiteLeft;
            if !is_exits || self.exits.are_attached() {
                by_target.entry((*target, *called, !is_exits)).or_default().push(group.clone());
            }
        }
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for ((target, called, is_entries), groups) in by_target {
            let (links, of_these) =
                attach::attach(&self.engine, pid, process, &groups, &|| window.came_round())?;
            all.push(Attached { target, called, is_of_exits: !is_entries, links });
            refused.extend(of_these);
        }
        Ok((all, refused))
    }

    /// From now on, native functions get probes at their exits.
    ///
    /// # Errors
    /// The session has timed native calls before.
    pub(super) fn begin_timing(&mut self) -> Result<(), SessionError> {
        self.exits.begin()
    }

    /// Starts or stops recording the beginnings of timed calls. Once recording has stopped, no more probes
    /// are attached at exits.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub(super) fn remember_calls(&mut self, on: bool) -> Result<(), SessionError> {
        self.exits.remember(on, &mut self.engine)
    }

    /// Reports sites that the kernel refused.
    pub(super) fn take_refused(&mut self, refused: Vec<RefusedSite>, context: &mut Context) {
        for refused in refused {
            if let Some(texts) = self.exits.take_refused(&refused, &mut self.engine) {
                texts.into_iter().for_each(|text| context.warn(text));
                continue;
            }
            let path = refused.file.path().display();
            context.warn(format!(
                "the kernel refuses a probe at {path}+{}: {}",
                refused.site.offset, refused.error
            ));
        }
    }

    /// From now on, the programs no longer announce forks and execs of a process.
    pub(super) fn untrack(&mut self, pid: Pid) {
        self.callers.remove(pid, self.engine.callers());
        if let Err(error) = self.engine.untrack(pid) {
            tracing::debug!("cannot untrack process {pid}: {error}");
        }
    }

    /// Finds the Python functions of a process if no helper reports them. The plan gives the entry source.
    pub(super) fn follower(&self, process: &Process, plan: &Plan) -> Option<PythonFollower> {
        PythonFollower::new(process, plan, &self.room)
    }

    /// A follower with the same entry source for another process. Reads everything from the start.
    pub(super) fn follower_like(&self, other: &PythonFollower, process: &Process) -> Option<PythonFollower> {
        other.in_process(process, &self.room)
    }

    /// Handles what a process's perf map contains now. This stops at a time limit, and then some entries
    /// remain for later.
    pub(super) fn read_perf_map(&mut self, pid: Pid, processes: &mut Processes, context: &mut Context) {
        perf_maps::read(pid, processes, &mut self.engine, context);
    }

    /// Handles new lines in perf maps.
    pub(super) fn poll_perf_maps(&mut self, processes: &mut Processes, context: &mut Context) {
        self.perf_maps.poll(processes, &mut self.engine, context);
    }

    /// Finds the function at a code location that `function__entry` named in the process with this index.
    pub(super) fn judge(
        &mut self,
        location: (u32, &PythonKey),
        process: u32,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        self.locations.judge(location, process, processes, &mut self.engine, context);
    }

    /// Handles once more the code locations that no target selected.
    pub(super) fn judge_anew(&mut self, processes: &mut Processes, context: &mut Context) {
        self.locations.judge_anew(processes, &mut self.engine, context);
    }

    /// Handles the code locations whose announcement was lost.
    pub(super) fn find_lost_locations(&mut self, processes: &mut Processes, context: &mut Context) {
        self.locations.find_lost(processes, &mut self.engine, context);
    }

    /// How many calls each function had before we handled its announcement, by the function's index.
    pub(super) fn pending_calls(&self) -> HashMap<u32, u64> {
        self.locations.pending_calls(&self.engine)
    }

    /// Reads how many native calls have no time.
    pub(super) fn look_at_untimed(&self, state: &mut State) {
        if let Some(untimed) = native_untimed(&self.engine) {
            state.native_untimed = untimed;
        }
    }
}
