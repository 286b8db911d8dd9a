//! Python functions that appear while the session runs: from perf maps as they grow, and from code
//! locations that `function__entry` names for the first time.

use std::{collections::HashMap, path::PathBuf};

use speed_bump_abi::{PythonKey, TrampolineKey, Verdict};

use crate::{
    engine::bpf::BpfEngine,
    probe::plan::{Entry, Plan, PythonPlan, SelectedFunction},
    process::Process,
    python::{
        EntrySource,
        perf_map::{PerfMapEntry, PerfMapFollower},
        trampoline,
    },
    session::Session,
    targets::TargetIndex,
    units::Pid,
};

/// How the Python functions of one process become known.
#[derive(Debug)]
pub enum PythonFollower {
    /// The perf map is read as it grows.
    PerfMap {
        /// Reads it.
        follower: PerfMapFollower,
        /// Bytes from a trampoline's start to where the evaluator returns to; known with the first entry.
        return_offset: Option<u64>,
    },
    /// Calls name their functions themselves.
    Usdt,
}

impl PythonFollower {
    /// The follower that a plan asks for.
    pub(super) fn new(process: &Process, plan: &Plan) -> Option<Self> {
        match plan.python {
            PythonPlan::Source(EntrySource::PerfMap) => Some(Self::perf_map(process)),
            PythonPlan::Source(EntrySource::Usdt) => Some(Self::Usdt),
            PythonPlan::NotAsked | PythonPlan::Impossible(_) => None,
        }
    }

    fn perf_map(process: &Process) -> Self {
        Self::PerfMap { follower: PerfMapFollower::new(process.perf_map_path()), return_offset: None }
    }

    /// The follower for a forked child: CPython gives it trampolines and a perf map of its own.
    pub(super) fn in_child(&self, child: &Process) -> Self {
        match self {
            Self::PerfMap { .. } => Self::perf_map(child),
            Self::Usdt => Self::Usdt,
        }
    }
}

/// Code locations that `function__entry` named and a target selected.
#[derive(Debug, Default)]
pub struct Locations {
    selected: HashMap<u32, u32>,
}

impl Locations {
    /// Calls that came before the verdict, by function.
    pub(super) fn pending_calls(&self, engine: &BpfEngine) -> HashMap<u32, u64> {
        let mut calls = HashMap::new();
        for (location, function) in &self.selected {
            *calls.entry(*function).or_default() += engine.pending_calls(*location).unwrap_or(0);
        }
        calls
    }
}
