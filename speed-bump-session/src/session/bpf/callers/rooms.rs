//! Room in the map of callers' code. Processes with the same code at the same addresses, as after a fork,
//! share it.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use speed_bump_abi::{CallerRange, CallerSpan, maps::CALLER_RANGES_CAPACITY};

use crate::session::error::SessionError;

/// A program may still read what was there before: room that was given back is not used again for this long.
const REST: Duration = Duration::from_secs(1);

/// Which parts of the map are in use.
#[derive(Debug)]
pub(super) struct Rooms {
    taken: HashMap<Arc<[CallerRange]>, Taken>,
    /// Free room: the first index, and how many indices are free from there on.
    free: BTreeMap<u32, u32>,
    /// Room that was given back a moment ago, in this order: when, the first index, and how many indices.
    resting: VecDeque<(Instant, u32, u32)>,
}

#[derive(Debug)]
struct Taken {
    first: u32,
    users: usize,
}

impl Default for Rooms {
    fn default() -> Self {
        let free = BTreeMap::from([(0, CALLER_RANGES_CAPACITY)]);
        Self { taken: HashMap::new(), free, resting: VecDeque::new() }
    }
}

impl Rooms {
    /// Room for the code of a process, and whether nothing is written there yet.
    ///
    /// # Errors
    /// [`SessionError::Full`].
    pub(super) fn take(&mut self, code: &Arc<[CallerRange]>) -> Result<(CallerSpan, bool), SessionError> {
        let full = || SessionError::Full { things: "places of `caller=`", capacity: CALLER_RANGES_CAPACITY };
        let count = u32::try_from(code.len()).map_err(|_| full())?;
        if count == 0 {
            return Ok((CallerSpan::default(), false));
        }
        if let Some(taken) = self.taken.get_mut(code) {
            taken.users += 1;
            return Ok((CallerSpan { first: taken.first, count }, false));
        }
        while self.resting.front().is_some_and(|(since, ..)| since.elapsed() >= REST) {
            let Some((_, first, count)) = self.resting.pop_front() else { break };
            self.free(first, count);
        }
        let mut fitting = self.free.iter().filter(|(_, room)| **room >= count);
        let (&first, &room) = fitting.next().ok_or_else(full)?;
        self.free.remove(&first);
        if room > count {
            self.free.insert(first + count, room - count);
        }
        self.taken.insert(Arc::clone(code), Taken { first, users: 1 });
        Ok((CallerSpan { first, count }, true))
    }

    /// A process no longer uses its room.
    pub(super) fn give_back(&mut self, code: &Arc<[CallerRange]>) {
        let Some(taken) = self.taken.get_mut(code) else { return };
        taken.users -= 1;
        if taken.users > 0 {
            return;
        }
        let first = taken.first;
        self.taken.remove(code);
        // No more are given back than were taken.
        let count = u32::try_from(code.len()).unwrap_or(0);
        self.resting.push_back((Instant::now(), first, count));
    }

    /// Makes indices free, together with those beside them.
    fn free(&mut self, mut first: u32, mut count: u32) {
        if let Some((&before, &room)) = self.free.range(..first).next_back()
            && before + room == first
        {
            self.free.remove(&before);
            (first, count) = (before, count + room);
        }
        count += self.free.remove(&(first + count)).unwrap_or(0);
        self.free.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn code(start: u64, count: usize) -> Arc<[CallerRange]> {
        (0..count as u64).map(|at| CallerRange { start: start + at, ..CallerRange::default() }).collect()
    }

    /// Makes all room that was given back free at once.
    fn wait(rooms: &mut Rooms) {
        for (_, first, count) in std::mem::take(&mut rooms.resting) {
            rooms.free(first, count);
        }
    }

    #[test]
    fn the_same_code_has_one_room() {
        let mut rooms = Rooms::default();
        let span = |first, count| CallerSpan { first, count };
        assert_eq!(rooms.take(&code(0, 0)).unwrap(), (span(0, 0), false));
        assert_eq!(rooms.take(&code(7, 3)).unwrap(), (span(0, 3), true));
        assert_eq!(rooms.take(&code(8, 3)).unwrap(), (span(3, 3), true));
        assert_eq!(rooms.take(&code(7, 3)).unwrap(), (span(0, 3), false));
        rooms.give_back(&code(7, 3));
        wait(&mut rooms);
        assert_eq!(rooms.take(&code(9, 1)).unwrap(), (span(6, 1), true), "one still uses it");
        rooms.give_back(&code(7, 3));
        rooms.give_back(&code(7, 3));
        rooms.give_back(&code(0, 0));
        wait(&mut rooms);
        assert_eq!(rooms.take(&code(10, 2)).unwrap(), (span(0, 2), true));
    }

    #[test]
    fn the_rest_of_one_room_keeps_no_other_from_use() {
        let mut rooms = Rooms::default();
        for start in 1..100 {
            let first = rooms.take(&code(start, 5)).unwrap().0.first;
            rooms.give_back(&code(start, 5));
            assert_eq!(u64::from(first), (start - 1) * 5);
        }
        wait(&mut rooms);
        assert_eq!(rooms.take(&code(100, 5)).unwrap().0.first, 0);
        rooms.give_back(&code(100, 5));
        wait(&mut rooms);
        assert_eq!(rooms.free, BTreeMap::from([(0, CALLER_RANGES_CAPACITY)]));
    }

    #[test]
    fn room_is_used_again_after_a_rest() {
        let mut rooms = Rooms::default();
        let half = CALLER_RANGES_CAPACITY as usize / 2;
        let (one, two, all) = (code(1, half), code(2, half), code(3, 2 * half));
        for half in [&one, &two] {
            assert!(rooms.take(half).unwrap().1);
        }
        assert!(matches!(rooms.take(&code(5, 1)), Err(SessionError::Full { .. })));
        rooms.give_back(&two);
        rooms.give_back(&one);
        assert!(matches!(rooms.take(&all), Err(SessionError::Full { .. })), "not rested");
        wait(&mut rooms);
        assert_eq!(rooms.take(&all).unwrap().0, CallerSpan { first: 0, count: CALLER_RANGES_CAPACITY });
        assert!(rooms.free.is_empty());
    }
}
