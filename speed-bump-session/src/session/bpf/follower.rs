//! Finds the Python functions of one process if no helper reports them: from the process's perf map, or from
//! source files.

use std::collections::HashMap;

use crate::{
    bounds::{Budget, Share},
    probe::{
        plan::{Plan, PythonPlan},
        resolve::python::perf_map_of,
        site::SiteKind,
    },
    process::Process,
    python::{
        entry_source::EntrySource,
        perf_map::{FOLLOWED_BY_ALL, PerfMapFollower},
        root::ProcessRoot,
        source::SourceIndex,
        trampoline::Trampolines,
        version::PythonVersion,
    },
};

/// The most bytes for the source files of all processes: twice the need of 100,000 functions.
const SOURCES_BYTES: usize = 64 << 20;

/// Room that all processes of a session share.
#[derive(Debug)]
pub(super) struct Rooms {
    /// Room for trampolines that perf maps name.
    trampolines: Budget,
    /// Room for what we know of source files, in bytes.
    sources: Budget,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { trampolines: Budget::new(FOLLOWED_BY_ALL), sources: Budget::new(SOURCES_BYTES) }
    }
}

/// Finds the Python functions of one process.
#[derive(Debug)]
pub(super) struct PythonFollower {
    pub(super) version: PythonVersion,
    /// The instruction at the probe, which decides the floor.
    pub(super) kind: SiteKind,
    pub(super) naming: Naming,
}

#[derive(Debug)]
pub(super) enum Naming {
    /// We read the perf map as it grows. The follower is `None` once we cannot read the map any further.
    PerfMap {
        follower: Option<Box<PerfMapFollower>>,
        trampolines: Trampolines,
        /// How many complaints about the trampolines we have reported.
        told: usize,
    },
    /// Calls name their functions, and source files give the qualified names.
    Usdt { root: Option<ProcessRoot>, sources: HashMap<String, Option<SourceIndex>>, share: Share },
}

impl PythonFollower {
    /// A follower for the entry source of a plan.
    pub(super) fn new(process: &Process, plan: &Plan, room: &Rooms) -> Option<Self> {
        let PythonPlan::Source { source, version, .. } = plan.python else { return None };
        let kind = plan.sites.iter().find(|site| site.function.is_none())?.kind;
        Some(Self { version, kind, naming: Naming::new(process, source, room)? })
    }

    /// A follower with the same entry source for another process, such as a forked child: CPython gives a
    /// child its own trampolines and perf map. The follower reads everything from the start.
    pub(super) fn in_process(&self, process: &Process, room: &Rooms) -> Option<Self> {
        Some(Self {
            version: self.version,
            kind: self.kind,
            naming: Naming::new(process, self.source(), room)?,
        })
    }

    /// Whether we read a perf map.
    pub(super) fn reads_perf_map(&self) -> bool {
        self.source() == EntrySource::PerfMap
    }

    /// The entry source.
    pub(super) fn source(&self) -> EntrySource {
        match self.naming {
            Naming::PerfMap { .. } => EntrySource::PerfMap,
            Naming::Usdt { .. } => EntrySource::Usdt,
        }
    }
}

impl Naming {
    fn new(process: &Process, source: EntrySource, room: &Rooms) -> Option<Self> {
        Some(match source {
            // The control block has these functions.
            EntrySource::Helper => return None,
            EntrySource::PerfMap => {
                let follower = perf_map_of(process, &room.trampolines).map(Box::new);
                if let Err(error) = &follower {
                    tracing::debug!("the perf map of process {} is not followed: {error}", process.pid());
                }
                Self::PerfMap { follower: follower.ok(), trampolines: Trampolines::default(), told: 0 }
            }
            EntrySource::Usdt => {
                let share = room.sources.share(usize::MAX);
                Self::Usdt {
                    root: ProcessRoot::of_process(process.pid()).ok(),
                    sources: HashMap::new(),
                    share,
                }
            }
        })
    }
}
