//! Finds Python functions that appear in perf maps while the session runs.

use std::time::{Duration, Instant};

use speed_bump_abi::TrampolineKey;

use super::{
    context::Context,
    follower::{Naming, PythonFollower},
    phase::Processes,
};
use crate::{
    engine::bpf::BpfEngine,
    probe::{
        plan::{Entry, SelectedFunction},
        resolve::python::{anonymous, left_out},
        site::SiteKind,
    },
    python::perf_map::PerfMapEntry,
    session::error::SessionError,
    units::Pid,
};

/// How long we read the perf map of a process that we are about to cover.
const AT_ONCE: Duration = Duration::from_secs(2);
/// How long we read perf maps in one turn of the event loop.
const AT_A_TIME: Duration = Duration::from_millis(50);
/// The most complaints about one perf map that we report: each line can be wrong in its own way.
const COMPLAINTS: usize = 5;

/// Decides which perf map we read next.
#[derive(Debug, Default)]
pub(super) struct PerfMaps {
    /// The process whose perf map comes next, if others used up the time of the last turn.
    turn: Option<Pid>,
}

impl PerfMaps {
    /// Handles new lines in perf maps, in turn and within a time limit: a process that writes much must not
    /// keep the session from other work.
    pub(super) fn poll(&mut self, processes: &mut Processes, engine: &mut BpfEngine, context: &mut Context) {
        let began = Instant::now();
        let first = self.turn.take().unwrap_or(Pid::FIRST);
        for pid in processes.pids_from(first) {
            if began.elapsed() > AT_A_TIME {
                self.turn = Some(pid);
                return;
            }
            poll_one(pid, processes, engine, context);
        }
    }
}

/// Handles what a process's perf map contains now. This stops at a time limit, and then some entries remain
/// for later.
pub(super) fn read(pid: Pid, processes: &mut Processes, engine: &mut BpfEngine, context: &mut Context) {
    let began = Instant::now();
    poll_one(pid, processes, engine, context);
    while is_behind(pid, processes) && began.elapsed() < AT_ONCE {
        poll_one(pid, processes, engine, context);
    }
}

fn is_behind(pid: Pid, processes: &Processes) -> bool {
    let follower = processes.get(pid).and_then(|covered| covered.python.as_ref());
    match follower.map(|follower| &follower.naming) {
        Some(Naming::PerfMap { follower: Some(map), .. }) => map.is_behind(),
        _ => false,
    }
}

/// Handles new lines in a process's perf map.
fn poll_one(pid: Pid, processes: &mut Processes, engine: &mut BpfEngine, context: &mut Context) {
    let complaint = follow(pid, processes, engine, context).err();
    let Some(covered) = processes.get_mut(pid) else { return };
    let Some(PythonFollower { naming: Naming::PerfMap { follower: Some(map), told, .. }, .. }) =
        &mut covered.python
    else {
        return;
    };
    let left_out = map.has_left_out().then(|| left_out(map));
    let complaint = complaint.filter(|_| *told < COMPLAINTS);
    *told += usize::from(complaint.is_some());
    for text in complaint.into_iter().chain(left_out) {
        context.warn(format!("process {pid}: {text}"));
    }
}

/// Like [`poll_one`], but returns complaints instead of reporting them.
fn follow(
    pid: Pid,
    processes: &mut Processes,
    engine: &mut BpfEngine,
    context: &mut Context,
) -> Result<(), String> {
    let Some(covered) = processes.get_mut(pid) else { return Ok(()) };
    let (process, index) = (&covered.process, covered.index);
    let Some(PythonFollower { kind, naming: Naming::PerfMap { follower, trampolines, .. }, .. }) =
        &mut covered.python
    else {
        return Ok(());
    };
    let (Some(map), kind) = (follower, *kind) else { return Ok(()) };
    let entries = map.poll(|| anonymous(process)).map_err(|error| error.to_string())?;
    if entries.is_empty() {
        return Ok(());
    }
    let memory = process.memory().map_err(|error| error.to_string())?;
    let mut located = Vec::with_capacity(entries.len());
    let mut unlocated = Ok(());
    for entry in entries {
        let read =
            |address, buffer: &mut [u8]| memory.read_exact(address, buffer).map_err(std::io::Error::other);
        match trampolines.return_address(&entry, read) {
            Ok(address) => located.push((entry, address.0)),
            Err(error) => unlocated = Err(error.to_string()),
        }
    }
    for (entry, return_address) in located {
        let key = TrampolineKey { return_address, process: u64::from(index) };
        match name_trampoline(&entry, key, kind, engine, context) {
            Ok(true) => tracing::debug!("process {pid}: {} is covered", entry.qualname),
            Ok(false) => {}
            Err(error) => return Err(format!("{} is not delayed: {error}", entry.qualname)),
        }
    }
    unlocated
}

/// Records the function of a trampoline, and returns whether a target selects it. The memory may have
/// belonged to another function before.
fn name_trampoline(
    entry: &PerfMapEntry,
    key: TrampolineKey,
    kind: SiteKind,
    engine: &mut BpfEngine,
    context: &mut Context,
) -> Result<bool, SessionError> {
    let targets = context.resolver.targets();
    let selection = targets.python_in(&entry.filename).select(&entry.qualname);
    let Some(target) = targets.for_all_callers(&selection) else {
        engine.remove_trampoline(&key)?;
        return Ok(false);
    };
    let function = SelectedFunction {
        target,
        name: entry.qualname.clone(),
        file: entry.filename.clone().into(),
        line: None,
    };
    let index = context.python_function(&function, Entry::PerfMap, kind)?;
    engine.set_trampoline(key, index)?;
    Ok(true)
}
