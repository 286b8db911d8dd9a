//! The maps for `caller=` of native functions.

use aya::maps::{Array, HashMap, MapData, MapError};
use speed_bump_abi::{CallerLineSets, CallerLines, CallerRange, CallerSpan, maps};

use super::{is_not_found, object::EngineError, object::Maps};
use crate::units::Pid;

/// Where callers lie in each process, and which line takes which calls.
pub struct CallerMaps {
    ranges: Array<MapData, CallerRange>,
    spans: HashMap<MapData, u32, CallerSpan>,
    lines: Array<MapData, CallerLineSets>,
}

impl CallerMaps {
    pub(super) fn take(maps: &mut Maps) -> Result<Self, EngineError> {
        Ok(Self {
            ranges: maps.take(maps::CALLER_RANGES)?.try_into()?,
            spans: maps.take(maps::CALLER_SPANS)?.try_into()?,
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

    /// Sets the ranges of a process. Until then, none of its calls of functions with targets for some callers
    /// alone are counted.
    ///
    /// # Errors
    /// The map is full.
    pub fn set_span(&mut self, pid: Pid, span: CallerSpan) -> Result<(), MapError> {
        self.spans.insert(pid.get().unsigned_abs(), span, 0)
    }

    /// Undoes [`set_span`](Self::set_span).
    ///
    /// # Errors
    /// What the map update returns, except that the process had none.
    pub fn remove_span(&mut self, pid: Pid) -> Result<(), MapError> {
        match self.spans.remove(&pid.get().unsigned_abs()) {
            Err(MapError::KeyNotFound) | Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
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
