//! The session's functions, with their indices in the engine's maps.
//!
//! A function has one index in all processes. But a process with a helper numbers its functions itself. This
//! process has a range of indices, and the report adds up the counts of the same function.

use std::{collections::BTreeMap, sync::Arc};

use speed_bump_abi::FunctionStats;

use super::known::{FunctionId, KnownFunctions};
use crate::{probe::plan::SelectedFunction, session::error::SessionError};

/// There is additional room for names of callers that no target selects. It is the room for selected
/// functions, divided by this number.
const PART_FOR_CALLERS: usize = 4;

/// Consecutive indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionRange {
    /// The first index.
    pub first: u32,
    /// The number of indices.
    pub count: u32,
}

impl FunctionRange {
    /// The range, split into parts of at most `count` indices.
    pub(super) fn parts(self, count: u32) -> impl Iterator<Item = Self> {
        let end = self.first.saturating_add(self.count);
        let step = count.max(1);
        let starts = (self.first..end).step_by(step as usize);
        starts.map(move |first| Self { first, count: step.min(end - first) })
    }

    /// The index of the function with this number; `None` outside of the range.
    pub(super) fn index(self, number: u32) -> Option<u32> {
        (number < self.count).then(|| self.first.saturating_add(number))
    }
}

/// The function of each index, and the indices of each function.
#[derive(Debug)]
pub(super) struct FunctionTable {
    functions: BTreeMap<u32, FunctionId>,
    /// All functions. Snapshots share this table.
    known: Arc<KnownFunctions>,
    /// The indices of each function, by [`FunctionId`].
    indices: Vec<Indices>,
    single: Indexes,
    /// The indices for ranges. If `None`, ranges take single indices.
    ranges: Option<Indexes>,
    /// Ranges that were given back.
    free: Vec<FunctionRange>,
    /// The counts from ranges that were given back, by [`FunctionId`].
    past: Vec<FunctionStats>,
    /// The room that is left for names, in bytes.
    room: usize,
    callers: OnlyCallers,
}

/// Functions that no target selects, and that call selected functions. They have no counts of their own.
#[derive(Debug)]
struct OnlyCallers {
    known: KnownFunctions,
    /// The function of each index.
    ids: BTreeMap<u32, FunctionId>,
    /// The room that is left for the callers' names, in bytes.
    room: usize,
}

/// A function that calls another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Caller {
    /// A function that a target selects.
    Selected(FunctionId),
    /// A function that no target selects. These functions have their own numbers.
    Unselected(FunctionId),
}

/// Indices that are not in use yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Indexes {
    next: u32,
    end: u32,
}

impl Indexes {
    fn take(&mut self, count: u32) -> Result<FunctionRange, SessionError> {
        let end = self.next.checked_add(count).filter(|end| *end <= self.end);
        let end = end.ok_or(SessionError::Full { things: "functions", capacity: self.end })?;
        Ok(FunctionRange { first: std::mem::replace(&mut self.next, end), count })
    }
}

/// The indices of one function.
#[derive(Debug, Default)]
struct Indices {
    /// The index in processes that do not number functions themselves.
    own: Option<u32>,
    /// The indices in ranges.
    in_ranges: Vec<u32>,
}

impl FunctionTable {
    /// An empty table with room for this many bytes of names. `capacity` is the number of functions in the
    /// engine's maps. With `for_ranges`, ranges get this number of indices, which come after the others.
    pub(super) fn new(capacity: u32, for_ranges: Option<u32>, room: usize) -> Self {
        Self {
            functions: BTreeMap::new(),
            known: Arc::default(),
            indices: Vec::new(),
            single: Indexes { next: 0, end: capacity },
            ranges: for_ranges.map(|count| Indexes { next: capacity, end: capacity.saturating_add(count) }),
            free: Vec::new(),
            past: Vec::new(),
            room,
            callers: OnlyCallers {
                known: KnownFunctions::default(),
                ids: BTreeMap::new(),
                room: room / PART_FOR_CALLERS,
            },
        }
    }

    /// The index of a function, and whether it is new.
    ///
    /// # Errors
    /// [`SessionError::Full`] if there is no room.
    pub(super) fn enter(&mut self, function: &SelectedFunction) -> Result<(u32, bool), SessionError> {
        if let Some(index) = self.entry(function).and_then(|indices| indices.own) {
            return Ok((index, false));
        }
        let id = self.know(function).ok_or(SessionError::NamesFull)?;
        let index = self.single.take(1)?.first;
        self.functions.insert(index, id);
        self.of_id(id).own = Some(index);
        Ok((index, true))
    }

    /// All indices of a function.
    pub(super) fn indices(&self, function: &SelectedFunction) -> impl Iterator<Item = u32> + use<> {
        let indices = self.entry(function);
        let own = indices.and_then(|indices| indices.own);
        let in_ranges = indices.map(|indices| indices.in_ranges.clone());
        own.into_iter().chain(in_ranges.unwrap_or_default())
    }

    fn entry(&self, function: &SelectedFunction) -> Option<&Indices> {
        self.indices.get(self.known.id(function)?.0 as usize)
    }

    fn of_id(&mut self, id: FunctionId) -> &mut Indices {
        let position = id.0 as usize;
        if self.indices.len() <= position {
            self.indices.resize_with(position + 1, Indices::default);
        }
        &mut self.indices[position]
    }

    /// The number of a function. If the function is new, its names take room; `None` if there is too little.
    fn know(&mut self, function: &SelectedFunction) -> Option<FunctionId> {
        if let Some(id) = self.known.id(function) {
            return Some(id);
        }
        self.room = self.room.checked_sub(bytes_of(function))?;
        self.past.push(FunctionStats::default());
        Some(Arc::make_mut(&mut self.known).enter(function.clone()))
    }

    /// Indices for a process that numbers its functions itself.
    ///
    /// # Errors
    /// [`SessionError::Full`] if there is no room.
    pub(super) fn reserve(&mut self, count: u32) -> Result<FunctionRange, SessionError> {
        let fitting = self.free.iter().position(|range| range.count == count);
        match fitting {
            Some(position) => Ok(self.free.swap_remove(position)),
            None => self.ranges.as_mut().unwrap_or(&mut self.single).take(count),
        }
    }

    /// Names the function that has this number in a range. Ignores a number outside of the range. `false` if
    /// there is no room for the name.
    pub(super) fn name(&mut self, range: FunctionRange, number: u32, function: &SelectedFunction) -> bool {
        let Some(index) = range.index(number) else { return true };
        let Some(id) = self.know(function) else { return false };
        if let Some(before) = self.functions.insert(index, id) {
            self.of_id(before).in_ranges.retain(|other| *other != index);
        }
        self.of_id(id).in_ranges.push(index);
        true
    }

    /// Like [`name`](Self::name), for a function that no target selects.
    pub(super) fn name_caller(
        &mut self,
        range: FunctionRange,
        number: u32,
        function: &SelectedFunction,
    ) -> bool {
        let Some(index) = range.index(number) else { return true };
        let OnlyCallers { known, ids, room } = &mut self.callers;
        if known.id(function).is_none() {
            // Counts the record itself too, because a process can report any number of functions with empty
            // names.
            let needed = bytes_of(function).saturating_add(size_of::<SelectedFunction>());
            let Some(left) = room.checked_sub(needed) else { return false };
            *room = left;
        }
        ids.insert(index, known.enter(function.clone()));
        true
    }

    /// The function of an index, if it can be a caller.
    pub(super) fn caller_at(&self, index: u32) -> Option<Caller> {
        let unselected = || self.callers.ids.get(&index).copied().map(Caller::Unselected);
        self.at(index).map(Caller::Selected).or_else(unselected)
    }

    /// The names of a caller.
    pub(super) fn caller(&self, caller: Caller) -> Option<&SelectedFunction> {
        match caller {
            Caller::Selected(id) => self.known.get(id),
            Caller::Unselected(id) => self.callers.known.get(id),
        }
    }

    /// Gives a range back. `stats` reads the counters of the functions in it.
    pub(super) fn give_back(&mut self, range: FunctionRange, stats: impl Fn(u32) -> FunctionStats) {
        let mut rest = self.functions.split_off(&range.first);
        let mut behind = rest.split_off(&(range.first + range.count));
        self.functions.append(&mut behind);
        let mut callers = self.callers.ids.split_off(&range.first);
        self.callers.ids.append(&mut callers.split_off(&(range.first + range.count)));
        for (index, id) in rest {
            self.of_id(id).in_ranges.retain(|other| *other != index);
            if let Some(past) = self.past.get_mut(id.0 as usize) {
                *past += stats(index);
            }
        }
        self.free.push(range);
    }

    /// All functions that were ever known.
    pub(super) fn known(&self) -> &Arc<KnownFunctions> {
        &self.known
    }

    /// The function of an index.
    pub(super) fn at(&self, index: u32) -> Option<FunctionId> {
        self.functions.get(&index).copied()
    }

    /// The functions that have an index now.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &SelectedFunction)> {
        self.functions.iter().filter_map(|(index, id)| Some((*index, self.known.get(*id)?)))
    }

    /// The indices of all functions, as consecutive runs.
    pub(super) fn runs(&self) -> Vec<FunctionRange> {
        self.runs_in(FunctionRange { first: 0, count: u32::MAX })
    }

    /// The indices of functions in a range, as consecutive runs.
    pub(super) fn runs_in(&self, range: FunctionRange) -> Vec<FunctionRange> {
        let mut runs: Vec<FunctionRange> = Vec::new();
        for (index, _) in self.functions.range(range.first..range.first.saturating_add(range.count)) {
            match runs.last_mut() {
                Some(run) if run.first + run.count == *index => run.count += 1,
                _ => runs.push(FunctionRange { first: *index, count: 1 }),
            }
        }
        runs
    }

    /// The functions of one of these runs, in the order of their indices.
    pub(super) fn of_run(&self, run: FunctionRange) -> impl Iterator<Item = FunctionId> {
        let range = run.first..run.first.saturating_add(run.count);
        self.functions.range(range).map(|(_, id)| *id)
    }

    /// The counts from ranges that were given back, by [`FunctionId`].
    pub(super) fn past(&self) -> &[FunctionStats] {
        &self.past
    }
}

/// The length of a function's names in bytes.
pub(super) fn bytes_of(function: &SelectedFunction) -> usize {
    function.name.len() + function.file.as_os_str().len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::targets::TargetIndex;

    fn function(name: &str) -> SelectedFunction {
        SelectedFunction { target: TargetIndex(0), name: name.into(), file: "/a.py".into(), line: None }
    }

    #[test]
    fn single_functions_and_ranges_do_not_meet() {
        let mut table = FunctionTable::new(12, None, 1_000);
        assert_eq!(table.enter(&function("f")).unwrap(), (0, true));
        let range = table.reserve(10).unwrap();
        assert_eq!((range.first, range.count), (1, 10));
        assert_eq!(table.enter(&function("g")).unwrap(), (11, true));
        assert_eq!(table.enter(&function("f")).unwrap(), (0, false));
        assert!(matches!(table.enter(&function("h")), Err(SessionError::Full { .. })));
        table.name(range, 9, &function("f"));
        table.name(range, 10, &function("outside"));
        let names: Vec<_> = table.iter().map(|(index, function)| (index, function.name.as_str())).collect();
        assert_eq!(names, [(0, "f"), (10, "f"), (11, "g")]);
        let runs = [(0, 1), (10, 2)].map(|(first, count)| FunctionRange { first, count });
        assert_eq!(table.runs(), runs);
        assert_eq!(table.runs_in(range), [FunctionRange { first: 10, count: 1 }]);
        let parts: Vec<_> = range.parts(4).map(|part| (part.first, part.count)).collect();
        assert_eq!(parts, [(1, 4), (5, 4), (9, 2)]);
        assert_eq!(table.of_run(runs[1]).collect::<Vec<_>>(), [FunctionId(0), FunctionId(1)]);
        let indices = |table: &FunctionTable, name| table.indices(&function(name)).collect::<Vec<_>>();
        assert_eq!(
            [indices(&table, "f"), indices(&table, "g"), indices(&table, "h")],
            [vec![0, 10], vec![11], vec![]]
        );
        table.name(range, 9, &function("h"));
        assert_eq!([indices(&table, "f"), indices(&table, "h")], [vec![0], vec![10]]);
        table.give_back(range, |_| FunctionStats::default());
        assert_eq!([indices(&table, "f"), indices(&table, "h")], [vec![0], vec![]]);
    }

    #[test]
    fn callers_that_no_target_selects_are_named_and_nothing_else() {
        let room = PART_FOR_CALLERS * (size_of::<SelectedFunction>() + "outside/a.py".len());
        let mut table = FunctionTable::new(12, None, room);
        let range = table.reserve(10).unwrap();
        table.name(range, 0, &function("f"));
        assert!(table.name_caller(range, 1, &function("outside")));
        assert!(table.name_caller(range, 2, &function("outside")), "known already");
        assert!(!table.name_caller(range, 3, &function("more")), "a quarter of the room");
        assert!(table.name_caller(range, 10, &function("beyond")), "passed over");
        let callers = [0, 1, 2, 3].map(|index| table.caller_at(index));
        let [Some(selected), Some(unselected), again, None] = callers else { unreachable!("{callers:?}") };
        assert_eq!((selected, again), (Caller::Selected(FunctionId(0)), Some(unselected)));
        let name = |caller| table.caller(caller).map(|function| function.name.as_str());
        assert_eq!((name(selected), name(unselected)), (Some("f"), Some("outside")));
        assert_eq!((table.known().len(), table.iter().count(), table.runs().len()), (1, 1, 1));
        table.give_back(range, |_| FunctionStats::default());
        assert_eq!([0, 1, 2].map(|index| table.caller_at(index)), [None; 3]);
        assert_eq!(table.caller(unselected).map(|function| function.name.as_str()), Some("outside"));
    }

    #[test]
    fn ranges_may_lie_beyond_single_functions() {
        let mut table = FunctionTable::new(2, Some(10), 1_000);
        let range = table.reserve(10).unwrap();
        assert_eq!((range.first, range.count), (2, 10));
        assert!(matches!(table.reserve(1), Err(SessionError::Full { .. })));
        assert_eq!(table.enter(&function("f")).unwrap(), (0, true));
        assert_eq!(table.enter(&function("g")).unwrap(), (1, true));
        assert!(matches!(table.enter(&function("h")), Err(SessionError::Full { .. })));
        table.name(range, 9, &function("f"));
        assert_eq!(table.indices(&function("f")).collect::<Vec<_>>(), [0, 11]);
    }

    #[test]
    fn names_have_a_bound_whatever_becomes_of_their_functions() {
        // Each function takes six bytes: one for its name, five for its file.
        let mut table = FunctionTable::new(100, None, 18);
        let range = table.reserve(10).unwrap();
        assert!(table.name(range, 0, &function("f")) && table.name(range, 1, &function("g")));
        assert!(table.name(range, 1, &function("f")), "known already, in place of another");
        assert!(table.enter(&function("i")).is_ok() && table.enter(&function("i")).is_ok());
        assert!(!table.name(range, 2, &function("j")), "what was known is kept, for the report");
        assert!(matches!(table.enter(&function("j")), Err(SessionError::NamesFull)));
        table.give_back(range, |_| FunctionStats::default());
        let again = table.reserve(10).unwrap();
        assert!(table.name(again, 0, &function("g")), "no name twice");
        assert_eq!(table.known().len(), 3);
    }

    #[test]
    fn what_a_range_counted_outlives_it() {
        let mut table = FunctionTable::new(8, None, 1_000);
        let stats = |calls| FunctionStats { calls, missed: 1, ..FunctionStats::default() };
        for calls in [3, 4] {
            let range = table.reserve(8).unwrap();
            table.name(range, 0, &function("f"));
            table.name(range, 5, &function("g"));
            table.give_back(range, |index| stats(calls + u64::from(index)));
            assert_eq!(table.iter().count(), 0);
        }
        let names: Vec<_> = table.known().iter().map(|(_, function)| function.name.as_str()).collect();
        let past: Vec<_> = table.past().iter().map(|stats| (stats.calls, stats.missed)).collect();
        assert_eq!((names, past), (vec!["f", "g"], vec![(7, 2), (17, 2)]));
    }
}
