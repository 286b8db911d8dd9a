//! `caller=` of native functions: where the callers lie in each process, and which target each call of a
//! function belongs to.

mod rooms;

use std::{collections::HashMap, sync::Arc};

use aya::maps::MapError;
use speed_bump_abi::{CallerLine, CallerLines, CallerRange, NO_FUNCTION};

use self::rooms::Rooms;
use crate::{
    engine::bpf::callers::CallerMaps,
    probe::plan::{Plan, PlannedSite},
    process::mapped_file::FileIdentity,
    session::error::SessionError,
    targets::native_callers::bit,
    units::{FileOffset, Pid},
};

/// What the session has written into the engine's maps.
#[derive(Debug)]
pub(super) struct Callers {
    rooms: Rooms,
    /// The index of each process, and the code of callers there.
    of_processes: HashMap<Pid, (u32, Arc<[CallerRange]>)>,
    functions: HashMap<(FileIdentity, FileOffset), Called>,
    capacity: u32,
    /// Counts changes of targets.
    turn: u64,
}

/// A function with targets for some callers alone.
#[derive(Debug)]
struct Called {
    /// Its number in the engine's map.
    number: u32,
    lines: CallerLines,
    /// When targets last selected it.
    turn: u64,
}

impl Callers {
    /// With room for as many functions as the engine's map.
    pub(super) fn new(capacity: u32) -> Self {
        let (rooms, of_processes, functions) = Default::default();
        Self { rooms, of_processes, functions, capacity, turn: 0 }
    }

    /// Sets where the callers lie in the process with this index. Its calls count from here on.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn set(
        &mut self,
        (pid, process): (Pid, u32),
        code: &Arc<[CallerRange]>,
        maps: &mut CallerMaps,
    ) -> Result<(), SessionError> {
        let (span, is_new) = self.rooms.take(code)?;
        let mut set = || {
            if is_new {
                maps.set_ranges(span.first, code)?;
            }
            maps.set_span(pid, process, span)
        };
        if let Err(error) = set() {
            self.rooms.give_back(code);
            return Err(error.into());
        }
        if let Some((before, code)) = self.of_processes.insert(pid, (process, Arc::clone(code))) {
            if before != process {
                forget(maps.remove_span(before), pid);
            }
            self.rooms.give_back(&code);
        }
        Ok(())
    }

    /// The calls of a process no longer count.
    pub(super) fn remove(&mut self, pid: Pid, maps: &mut CallerMaps) {
        let Some((process, code)) = self.of_processes.remove(&pid) else { return };
        forget(maps.remove_span(process), pid);
        forget(maps.remove_process(pid), pid);
        self.rooms.give_back(&code);
    }

    /// Sets the targets of the function at a site. Returns its number.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn enter(
        &mut self,
        site: &PlannedSite,
        lines: CallerLines,
        maps: &mut CallerMaps,
    ) -> Result<u32, SessionError> {
        let key = (site.file.identity(), site.offset);
        if let Some(called) = self.functions.get_mut(&key) {
            called.turn = self.turn;
            if called.lines != lines {
                maps.set_lines(called.number, lines)?;
                called.lines = lines;
            }
            return Ok(called.number);
        }
        let number = u32::try_from(self.functions.len())
            .ok()
            .filter(|number| *number < self.capacity)
            .ok_or(SessionError::Full { things: "functions with `caller=`", capacity: self.capacity })?;
        maps.set_lines(number, lines)?;
        self.functions.insert(key, Called { number, lines, turn: self.turn });
        Ok(number)
    }

    /// The function at a site has a target for all calls, and a probe of its own for that: it has no targets
    /// for some callers any more.
    ///
    /// # Errors
    /// What the map update returns.
    pub(super) fn retire(&mut self, site: &PlannedSite, maps: &mut CallerMaps) -> Result<(), SessionError> {
        if let Some(called) = self.functions.get_mut(&(site.file.identity(), site.offset))
            && called.lines != CallerLines::NONE
        {
            maps.set_lines(called.number, CallerLines::NONE)?;
            called.lines = CallerLines::NONE;
        }
        Ok(())
    }

    /// Targets are about to change.
    pub(super) fn begin_change(&mut self) {
        self.turn += 1;
    }

    /// Targets have changed, and all processes have new plans. Functions that no target selects any more
    /// count no more calls. Returns their numbers.
    pub(super) fn end_change(&mut self, maps: &mut CallerMaps) -> Vec<u32> {
        let turn = self.turn;
        let unselected = self.functions.values_mut().filter(|called| called.turn != turn);
        let unselected = unselected.map(|called| {
            if let Err(error) = maps.set_lines(called.number, CallerLines::NONE) {
                tracing::debug!("cannot drop the lines of called function {}: {error}", called.number);
            }
            called.lines = CallerLines::NONE;
            called.number
        });
        unselected.collect()
    }
}

fn forget(removed: Result<(), MapError>, pid: Pid) {
    if let Err(error) = removed {
        tracing::debug!("cannot forget the callers of process {pid}: {error}");
    }
}

/// Whether a site of a plan stands for the same function as the one before it, with another target.
pub(super) fn is_another_line(plan: &Plan, at: usize) -> bool {
    let site = plan.sites.get(at);
    let before = at.checked_sub(1).and_then(|before| plan.sites.get(before));
    site.zip(before).is_some_and(|(site, before)| is_same_place(site, before))
}

/// The lines of the function at site `at` of a plan, which is the first site of this function. `indices`: the
/// indices of the plan's functions.
pub(super) fn lines(plan: &Plan, at: usize, indices: &[u32]) -> CallerLines {
    let mut lines = CallerLines::NONE;
    let sites = plan.sites.get(at..).unwrap_or_default();
    let first = sites.first();
    for site in sites.iter().take_while(|site| first.is_some_and(|first| is_same_place(first, site))) {
        let function = site.function.and_then(|position| indices.get(position).copied());
        let (Some(caller), Some(function)) = (site.caller, function) else { continue };
        if caller == 0 {
            lines.others = function;
        } else if let Some(line) = lines.lines.get_mut(lines.count as usize) {
            *line = CallerLine { callers: bit(caller), function };
            lines.count += 1;
        }
    }
    lines
}

/// The functions that calls may count as.
pub(super) fn functions(lines: &CallerLines) -> Vec<u32> {
    let of_lines = lines.lines.iter().take(lines.count as usize).map(|line| line.function);
    of_lines.chain(Some(lines.others).filter(|others| *others != NO_FUNCTION)).collect()
}

fn is_same_place(a: &PlannedSite, b: &PlannedSite) -> bool {
    let place = |site: &PlannedSite| (site.file.identity(), site.offset);
    a.caller.is_some() && b.caller.is_some() && place(a) == place(b)
}
