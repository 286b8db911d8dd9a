//! The engine `bpf` in a session: its probe sites, their links, and the functions that its programs report.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use speed_bump_abi::{NO_FUNCTION, PythonKey, SiteArguments};

use super::{
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
    engine::bpf::{BpfEngine, UprobeProgram},
    presence::Presence,
    probe::{
        attach::{self, AttachError, AttachSite, RefusedSite, SiteGroup},
        file::FileId,
        plan::{Plan, Timing},
    },
    process::Process,
    session::{error::SessionError, functions::FunctionRange, state::State},
    stats::times::not_timed,
    targets::TargetIndex,
    units::Pid,
};

/// The engine `bpf` with its probe sites.
pub(super) struct Probes {
    pub(super) engine: BpfEngine,
    sites: SiteTable,
    exits: Exits,
    /// Room that the followers of all processes share.
    room: Rooms,
    perf_maps: PerfMaps,
    locations: Locations,
}

impl Probes {
    /// Takes a loaded engine that has room for this many sites. `times` says whether the session times native
    /// calls from the start, where possible.
    pub(super) fn new(engine: BpfEngine, sites: u32, times: bool) -> Self {
        Self {
            engine,
            sites: SiteTable::new(sites),
            exits: Exits::new(times),
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
        let mut groups: BTreeMap<(FileId, UprobeProgram, Option<TargetIndex>), SiteGroup> = BTreeMap::new();
        let mut untimed = Vec::new();
        for site in &plan.sites {
            let function =
                site.function.and_then(|position| indices.get(position).copied()).unwrap_or(NO_FUNCTION);
            let (index, new) = self.sites.enter(site, function)?;
            if new {
                let costs = costs(&context.resolver, &mut self.engine)?;
                let arguments = SiteArguments {
                    function,
                    overhead_ns: overhead_ns(costs, site.kind),
                    way_ns: self.exits.remembered(index, way_ns(costs, site)),
                    stack_delta: site.stack_delta,
                    arguments: site.arguments,
                    ..SiteArguments::default()
                };
                self.engine.set_site(index, arguments)?;
            }
            let of = site.function.and_then(|position| plan.functions.get(position));
            if let Some(function) = of {
                context.note_entry(function.selected.target, function.entry, site.kind);
            }
            let target = of.map(|function| function.selected.target).filter(|_| apart);
            let mut add =
                |program, sites: Vec<AttachSite>| {
                    let group = groups.entry((site.file.id(), program, target)).or_insert_with(|| {
                        SiteGroup { file: Arc::clone(&site.file), program, sites: Vec::new() }
                    });
                    group.sites.extend(sites);
                };
            if let (true, Some(planned), Timing::Impossible(why)) = (new, of, &site.timing) {
                untimed.push((&planned.selected, why.as_str()));
            }
            let at = AttachSite { offset: site.offset, semaphore: site.semaphore, site: index };
            add(site.program, vec![at]);
            if let Some(planned) = of {
                let entry = EntrySite { planned: site, index, function, selected: &planned.selected };
                let exits = self.exits.enter(&entry, &mut self.sites, &mut self.engine, &context.resolver)?;
                if !exits.is_empty() {
                    add(UprobeProgram::SiteLeft, exits);
                }
            }
        }
        // For earlier processes, we told the user before the session began.
        if is_late {
            not_timed(untimed.into_iter()).into_iter().for_each(|text| context.warn(text));
        }
        let sites = groups.into_iter().map(|((.., target), group)| TargetSites { target, group });
        Ok(sites.collect())
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
        let mut by_target: BTreeMap<(Option<TargetIndex>, bool), Vec<SiteGroup>> = BTreeMap::new();
        for TargetSites { target, group } in sites {
            let is_exits = group.program == UprobeProgram::SiteLeft;
            if !is_exits || self.exits.are_attached() {
                by_target.entry((*target, !is_exits)).or_default().push(group.clone());
            }
        }
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for ((target, is_entries), groups) in by_target {
            let (links, of_these) =
                attach::attach(&self.engine, pid, process, &groups, &|| window.came_round())?;
            all.push(Attached { target, is_of_exits: !is_entries, links });
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
