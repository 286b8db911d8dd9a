//! The calls that a thread has in progress, and the times of one that ends.
//!
//! Calls end in the order of a stack, nearly always. If they do not (greenlets switch, an end was missed),
//! the calls in between are dropped: their time is not counted, and all calls below are right again.

/// The most calls in progress per thread. Python allows 1,000 unless the program raises the limit.
pub(super) const DEPTH: usize = 2048;

/// A call in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Call {
    /// Its end is recognised by this: the address of its code or of its frame.
    identity: usize,
    /// When it began.
    start: u64,
    /// The part of the time since then that timed callees took.
    callees: u64,
    function: u32,
    /// The helper's own time for starting the call; it counts for no function.
    lead: u32,
    /// The level of the caller and the function as a pair, or [`NO_PAIR`].
    pair: u32,
}

/// No pair of functions is recorded.
pub(super) const NO_PAIR: u32 = u32::MAX;

/// In place of a function's number: the call is not timed, and only its end is waited for.
pub(super) const PASSED_OVER: u32 = u32::MAX - 1;

impl Call {
    /// Sets its start to now, since the time before was the helper's work.
    #[inline]
    pub(super) fn begin_at(&mut self, now: u64) {
        self.lead = u32::try_from(passed(self.start, now)).unwrap_or(u32::MAX);
        self.start = now;
    }
}

/// The stack of a thread.
pub(super) struct Stack<'a> {
    pub(super) calls: &'a mut [Call],
    /// How often each function is in progress; after those, each pair of a caller and a function.
    pub(super) levels: &'a mut [u16],
    /// How many calls are in progress; those beyond the capacity are only counted.
    pub(super) depth: &'a mut usize,
}

/// A call that started.
pub(super) struct Entered<'a> {
    pub(super) call: &'a mut Call,
    /// Whether another call of the function is in progress.
    pub(super) recursive: bool,
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) function: u32,
    /// Its time without that of its callees.
    pub(super) own: u64,
    pub(super) total: u64,
    /// Whether no other call of the function is in progress.
    pub(super) is_outermost: bool,
    /// The level of its pair, or [`NO_PAIR`].
    pub(super) pair: u32,
    /// Whether no other call of the pair is in progress.
    pub(super) is_outermost_of_pair: bool,
}

impl Stack<'_> {
    /// A call starts. `None`: there is no room for it.
    #[inline]
    pub(super) fn enter(
        &mut self,
        identity: usize,
        function: u32,
        pair: u32,
        start: u64,
    ) -> Option<Entered<'_>> {
        let depth = *self.depth;
        *self.depth = depth.wrapping_add(1);
        let call = self.calls.get_mut(depth)?;
        let recursive = raise(self.levels, function);
        if pair != NO_PAIR {
            raise(self.levels, pair);
        }
        *call = Call { identity, start, callees: 0, function, lead: 0, pair };
        Some(Entered { call, recursive })
    }

    /// Ends a call, if it is the one that started last.
    #[inline]
    pub(super) fn leave_last(&mut self, identity: usize, now: u64) -> Option<Ended> {
        let depth = self.depth.checked_sub(1)?;
        let call = *self.calls.get(depth)?;
        if call.identity != identity {
            return None;
        }
        *self.depth = depth;
        let (is_outermost, is_outermost_of_pair) = self.lower(&call);
        let total = passed(call.start, now);
        if let Some(caller) = depth.checked_sub(1).and_then(|caller| self.calls.get_mut(caller)) {
            let timed = match call.function {
                PASSED_OVER => call.callees,
                _ => total.wrapping_add(u64::from(call.lead)),
            };
            caller.callees = caller.callees.wrapping_add(timed);
        }
        let own = total.saturating_sub(call.callees);
        let Call { function, pair, .. } = call;
        Some(Ended { function, own, total, is_outermost, pair, is_outermost_of_pair })
    }

    /// Ends a call of a timed function that is not the one that started last. Returns how many were dropped
    /// for that. An unknown call started before calls were timed.
    #[cold]
    pub(super) fn leave_below(&mut self, identity: usize, now: u64) -> (Option<Ended>, u32) {
        if *self.depth > self.calls.len() {
            *self.depth -= 1;
            return (None, 0);
        }
        let in_progress = self.calls.get(..*self.depth).unwrap_or_default();
        let Some(place) = in_progress.iter().rposition(|call| call.identity == identity) else {
            return (None, 0);
        };
        let mut dropped = 0;
        while *self.depth > place.saturating_add(1) {
            *self.depth -= 1;
            if let Some(call) = self.calls.get(*self.depth).copied() {
                self.lower(&call);
            }
            dropped += 1;
        }
        (self.leave_last(identity, now), dropped)
    }

    /// One call less is in progress. Returns whether none of its function is left, and none of its pair.
    #[inline]
    fn lower(&mut self, call: &Call) -> (bool, bool) {
        (lower(self.levels, call.function), call.pair == NO_PAIR || lower(self.levels, call.pair))
    }
}

/// Adds one. Returns whether there was one before.
#[inline]
fn raise(levels: &mut [u16], number: u32) -> bool {
    let Some(level) = levels.get_mut(number as usize) else { return false };
    let there_was_one = *level > 0;
    *level = level.saturating_add(1);
    there_was_one
}

/// Subtracts one. Returns whether none is left.
#[inline]
fn lower(levels: &mut [u16], number: u32) -> bool {
    let Some(level) = levels.get_mut(number as usize) else { return true };
    *level = level.saturating_sub(1);
    *level == 0
}

/// The difference; 0 if the clock was set back.
#[inline]
fn passed(from: u64, to: u64) -> u64 {
    to.saturating_sub(from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const F: usize = 100;
    const G: usize = 200;
    const H: usize = 300;

    /// A stack of at most four calls of functions 1 to 3, with the identities 100 to 300. The pair of a
    /// caller and a callee has the level 10 × caller + callee.
    struct Thread {
        calls: [Call; 4],
        levels: [u16; 34],
        depth: usize,
    }

    impl Default for Thread {
        fn default() -> Self {
            Self { calls: [Call::default(); 4], levels: [0; 34], depth: 0 }
        }
    }

    impl Thread {
        fn stack(&mut self) -> Stack<'_> {
            Stack { calls: &mut self.calls, levels: &mut self.levels, depth: &mut self.depth }
        }

        /// Returns whether it was recursive.
        fn enter(&mut self, identity: usize, at: u64) -> Option<bool> {
            let function = u32::try_from(identity / 100).unwrap();
            let last = self.depth.checked_sub(1).and_then(|last| self.calls.get(last));
            let pair = last.map_or(NO_PAIR, |caller| caller.function * 10 + function);
            self.stack().enter(identity, function, pair, at).map(|entered| entered.recursive)
        }

        /// Returns own time, whole time, and whether it was the outermost call.
        fn leave(&mut self, identity: usize, at: u64) -> (u64, u64, bool) {
            let ended = self.stack().leave_last(identity, at).unwrap();
            assert_eq!(ended.function as usize, identity / 100);
            (ended.own, ended.total, ended.is_outermost)
        }

        fn is_empty(&self) -> bool {
            self.depth == 0 && self.levels == [0; 34]
        }
    }

    #[test]
    fn the_time_of_callees_is_not_a_functions_own() {
        let mut thread = Thread::default();
        assert_eq!([thread.enter(F, 0), thread.enter(G, 10), thread.enter(H, 13)], [Some(false); 3]);
        assert_eq!(thread.leave(H, 20), (7, 7, true));
        assert_eq!(thread.leave(G, 30), (13, 20, true));
        thread.enter(H, 50);
        assert_eq!(thread.leave(H, 51), (1, 1, true));
        assert_eq!(thread.leave(F, 100), (79, 100, true));
        assert!(thread.is_empty());
    }

    #[test]
    fn of_a_recursion_the_outermost_call_counts_as_a_whole() {
        let mut thread = Thread::default();
        assert_eq!(thread.enter(F, 0), Some(false));
        assert_eq!(thread.enter(G, 1), Some(false));
        assert_eq!(thread.enter(F, 3), Some(true));
        assert_eq!(thread.leave(F, 8), (5, 5, false));
        assert_eq!(thread.leave(G, 9), (3, 8, true));
        assert_eq!(thread.leave(F, 10), (2, 10, true));
        assert!(thread.is_empty());
    }

    #[test]
    fn the_helpers_time_to_begin_a_call_counts_for_no_function() {
        let mut thread = Thread::default();
        thread.enter(F, 0);
        thread.stack().enter(G, 2, NO_PAIR, 10).unwrap().call.begin_at(14);
        assert_eq!(thread.leave(G, 20), (6, 6, true));
        assert_eq!(thread.leave(F, 30), (20, 30, true));
    }

    #[test]
    fn what_is_passed_over_counts_for_who_calls_it() {
        let mut thread = Thread::default();
        thread.enter(F, 0);
        assert!(!thread.stack().enter(F, PASSED_OVER, NO_PAIR, 10).unwrap().recursive);
        thread.stack().enter(G, 2, NO_PAIR, 20).unwrap();
        assert_eq!(thread.leave(G, 25), (5, 5, true));
        assert_eq!(thread.stack().leave_last(F, 40).map(|ended| ended.function), Some(PASSED_OVER));
        assert_eq!(thread.leave(F, 100), (95, 100, true));
        assert!(thread.is_empty());
    }

    /// F calls G, which calls F, which calls G: of the pair, the first call of G is the outermost one.
    #[test]
    fn a_pair_is_recursive_where_the_same_pair_is_in_progress() {
        let mut thread = Thread::default();
        for (identity, at) in [(F, 0), (G, 1), (F, 3), (G, 5)] {
            thread.enter(identity, at);
        }
        let mut ended = |identity, at| {
            let ended = thread.stack().leave_last(identity, at).unwrap();
            (ended.pair, ended.own, ended.total, ended.is_outermost_of_pair)
        };
        assert_eq!(ended(G, 6), (12, 1, 1, false));
        assert_eq!(ended(F, 7), (21, 3, 4, true));
        assert_eq!(ended(G, 9), (12, 4, 8, true));
        assert_eq!(ended(F, 10), (NO_PAIR, 2, 10, true), "it has no caller");
        assert!(thread.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_takes_nothing() {
        let mut thread = Thread::default();
        thread.enter(F, 100);
        thread.stack().enter(G, 2, NO_PAIR, 90).unwrap().call.begin_at(80);
        assert_eq!(thread.leave(G, 70), (0, 0, true));
        assert_eq!(thread.leave(F, 50), (0, 0, true));
    }

    #[test]
    fn what_is_not_the_last_call_ends_only_when_asked_for() {
        let mut thread = Thread::default();
        assert_eq!(thread.stack().leave_last(F, 1), None);
        assert_eq!(thread.stack().leave_below(F, 1), (None, 0));
        for (identity, at) in [(F, 0), (G, 1), (G, 2), (H, 3)] {
            thread.enter(identity, at);
        }
        assert_eq!(thread.stack().leave_last(G, 9), None);
        assert_eq!(thread.stack().leave_below(7, 9), (None, 0), "it began before it was timed");
        let (ended, dropped) = thread.stack().leave_below(F, 10);
        let whole = Ended {
            function: 1,
            own: 10,
            total: 10,
            is_outermost: true,
            pair: NO_PAIR,
            is_outermost_of_pair: true,
        };
        assert_eq!((ended, dropped), (Some(whole), 3));
        assert!(thread.is_empty());
        assert_eq!(thread.stack().leave_below(H, 11), (None, 0), "it was dropped");
    }

    #[test]
    fn of_a_recursion_that_is_dropped_the_outer_calls_stay() {
        let mut thread = Thread::default();
        for (identity, at) in [(G, 0), (F, 1), (H, 2), (G, 3)] {
            thread.enter(identity, at);
        }
        let (ended, dropped) = thread.stack().leave_below(F, 5);
        assert_eq!((ended.unwrap().total, dropped), (4, 2));
        assert_eq!(thread.leave(G, 8), (4, 8, true));
        assert!(thread.is_empty());
    }

    #[test]
    fn calls_beyond_the_room_are_not_timed_and_those_below_are() {
        let mut thread = Thread::default();
        let recursive: Vec<_> = (0..6).map(|at| thread.enter(F, at)).collect();
        assert_eq!(recursive, [Some(false), Some(true), Some(true), Some(true), None, None]);
        for at in [6, 7] {
            assert_eq!(thread.stack().leave_last(F, at), None);
            assert_eq!(thread.stack().leave_below(F, at), (None, 0));
        }
        let ended: Vec<_> = (8..12).map(|at| thread.leave(F, at)).collect();
        assert_eq!(ended, [(5, 5, false), (2, 7, false), (2, 9, false), (2, 11, true)]);
        assert!(thread.is_empty());
    }

    #[test]
    fn a_function_beyond_the_levels_is_never_recursive() {
        let mut thread = Thread::default();
        let entered = |thread: &mut Thread| thread.stack().enter(F, 99, NO_PAIR, 0).unwrap().recursive;
        assert!(!entered(&mut thread) && !entered(&mut thread));
        assert!(thread.stack().leave_last(F, 1).unwrap().is_outermost);
    }
}
