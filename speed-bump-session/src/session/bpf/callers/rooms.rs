//! Room in the map of callers' code. Processes with the same code at the same addresses, as after a fork,
//! share it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use speed_bump_abi::{CallerRange, CallerSpan, maps::CALLER_RANGES_CAPACITY};

use crate::session::error::SessionError;

/// A program may still read what a process had before: room is not used again for so long.
const REST: Duration = Duration::from_secs(1);

/// Which parts of the map are in use.
#[derive(Debug)]
pub(super) struct Rooms {
    taken: HashMap<Arc<[CallerRange]>, Taken>,
    /// By the first index: how many indices are free there, and since when.
    free: BTreeMap<u32, (u32, Option<Instant>)>,
}

#[derive(Debug)]
struct Taken {
    first: u32,
    users: usize,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { taken: HashMap::new(), free: BTreeMap::from([(0, (CALLER_RANGES_CAPACITY, None))]) }
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
        let has_rested = |since: Option<Instant>| since.is_none_or(|since| since.elapsed() >= REST);
        let mut fitting = self.free.iter().filter(|(_, (room, since))| *room >= count && has_rested(*since));
        let (&first, &(room, since)) = fitting.next().ok_or_else(full)?;
        self.free.remove(&first);
        if room > count {
            self.free.insert(first + count, (room - count, since));
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
        let Taken { mut first, .. } = *taken;
        self.taken.remove(code);
        // Fewer cannot have been taken than are given back.
        let mut count = u32::try_from(code.len()).unwrap_or(0);
        if let Some((&before, &(room, _))) = self.free.range(..first).next_back()
            && before + room == first
        {
            self.free.remove(&before);
            (first, count) = (before, count + room);
        }
        if let Some((room, _)) = self.free.remove(&(first + count)) {
            count += room;
        }
        self.free.insert(first, (count, Some(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn code(start: u64, count: usize) -> Arc<[CallerRange]> {
        (0..count as u64).map(|at| CallerRange { start: start + at, ..CallerRange::default() }).collect()
    }

    /// Makes all rest be over.
    fn wait(rooms: &mut Rooms) {
        rooms.free.values_mut().for_each(|(_, since)| *since = None);
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
