//! The maps for `caller=` of native functions.

use aya::maps::{Array, HashMap, MapData, MapError};
use speed_bump_abi::{CallerLineSets, CallerLines, CallerRange, CallerSpan, maps};

use super::{is_not_found, object::EngineError, object::Maps};
use crate::units::Pid;

/// Where callers lie in each process, and which line takes which calls.
pub struct CallerMaps {
    ranges: Array<MapData, CallerRange>,
    spans: HashMap<MapData, u32, CallerSpan>,
    processes: HashMap<MapData, u32, u32>,
    lines: Array<MapData, CallerLineSets>,
}

impl CallerMaps {
    pub(super) fn take(maps: &mut Maps) -> Result<Self, EngineError> {
        Ok(Self {
            ranges: maps.take(maps::CALLER_RANGES)?.try_into()?,
            spans: maps.take(maps::CALLER_SPANS)?.try_into()?,
            processes: maps.take(maps::CALLER_PROCESSES)?.try_into()?,
            lines: maps.take(maps::CALLER_LINES)?.try_into()?,
        })
    }

    /// Writes consecutive ranges, of which the first has this index. No process may have them yet.
    ///
    /// # Errors
    /// `OutOfBounds` beyond the capacity.
    pub fn set_ranges(&mut self, first: u32, ranges: &[CallerRange]) -> Result<(), MapError> {
        (first..).zip(ranges).try_for_each(|(index, range)| self.ranges.set(index, range, 0))
    }

    /// Sets the ranges of the process with this PID and index. Until then, none of its calls of functions
    /// with targets for some callers alone are counted.
    ///
    /// # Errors
    /// A map is full.
    pub fn set_span(&mut self, pid: Pid, process: u32, span: CallerSpan) -> Result<(), MapError> {
        self.spans.insert(process, span, 0)?;
        self.processes.insert(pid.get().unsigned_abs(), process, 0)
    }

    /// Removes the ranges of the process with this index.
    ///
    /// # Errors
    /// What the map update returns, except that the process had none.
    pub fn remove_span(&mut self, process: u32) -> Result<(), MapError> {
        unless_absent(self.spans.remove(&process))
    }

    /// Removes the index of the process with this PID.
    ///
    /// # Errors
    /// What the map update returns, except that the process had none.
    pub fn remove_process(&mut self, pid: Pid) -> Result<(), MapError> {
        unless_absent(self.processes.remove(&pid.get().unsigned_abs()))
    }

    /// Sets the lines of the function with this number. Calls find the old lines or the new ones.
    ///
    /// # Errors
    /// `OutOfBounds` beyond the capacity.
    pub fn set_lines(&mut self, number: u32, lines: CallerLines) -> Result<(), MapError> {
        let mut sets = self.lines.get(&number, 0)?;
        let next = (sets.current & 1) ^ 1;
        sets.sets[next as usize] = lines;
        self.lines.set(number, sets, 0)?;
        sets.current = next;
        self.lines.set(number, sets, 0)
    }
}

fn unless_absent(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::KeyNotFound) | Ok(()) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}
