//! Counts how often we sampled each stack in each thread. This shows which function of a set is the innermost
//! one.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use super::{
    functions::Number,
    profile::{StackSeen, ThreadOf},
    state::State,
};

/// The most stacks that we store.
const STACKS: usize = 1 << 15;
/// The most frames that we store, over all stacks.
const FRAMES: usize = 1 << 20;

/// The counts of a stack.
#[derive(Debug, Default)]
struct Tally {
    works: u64,
    waits: BTreeMap<&'static str, u64>,
}

/// The stacks of all processes. We leave out stacks for which there is no room.
#[derive(Debug, Default)]
pub(super) struct WholeStacks {
    stacks: HashMap<(ThreadOf, Rc<[Number]>), Tally>,
    frames: usize,
    /// The number of samples of stacks that we left out.
    left_out: u64,
}

impl WholeStacks {
    /// Adds a sample.
    pub(super) fn add(&mut self, thread: ThreadOf, stack: &Rc<[Number]>, state: State) {
        let key = (thread, Rc::clone(stack));
        if !self.stacks.contains_key(&key) {
            if self.stacks.len() == STACKS || self.frames + stack.len() > FRAMES {
                self.left_out += 1;
                return;
            }
            self.frames += stack.len();
        }
        let tally = self.stacks.entry(key).or_default();
        match state {
            State::Works => tally.works += 1,
            State::Waits(what) => *tally.waits.entry(what).or_default() += 1,
        }
    }

    /// The number of samples of stacks for which there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The results. `places` has the position of each function in the results, by the function's number.
    pub(super) fn seen(self, places: &[u32]) -> Vec<StackSeen> {
        let place = |number: &Number| places.get(usize::try_from(number.ok()?).ok()?).copied();
        let seen = |((thread, stack), Tally { works, waits }): ((ThreadOf, Rc<[Number]>), Tally)| StackSeen {
            thread,
            functions: stack.iter().filter_map(place).collect(),
            works,
            waits,
        };
        let mut stacks: Vec<StackSeen> = self.stacks.into_iter().map(seen).collect();
        stacks.sort_by(|a, b| (a.thread, &a.functions).cmp(&(b.thread, &b.functions)));
        stacks
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::units::Pid;

    #[test]
    fn stacks_are_counted_by_what_their_thread_did() {
        let pid = |number| Pid::new(number).unwrap();
        let thread = ThreadOf { process: pid(1), thread: pid(2) };
        let mut stacks = WholeStacks::default();
        let stack: Rc<[Number]> = Rc::from([Ok(1), Ok(0)]);
        stacks.add(thread, &stack, State::Works);
        stacks.add(thread, &Rc::from(&stack[..]), State::Works);
        stacks.add(thread, &stack, State::Waits("sleep"));
        let seen = stacks.seen(&[5, 3]);
        let waits = BTreeMap::from([("sleep", 1)]);
        assert_eq!(seen, [StackSeen { thread, functions: vec![3, 5], works: 2, waits }]);
    }

    #[test]
    fn there_is_room_for_so_many_frames() {
        let pid = Pid::new(1).unwrap();
        let thread = ThreadOf { process: pid, thread: pid };
        let mut stacks = WholeStacks::default();
        for number in 0..(FRAMES / 256 + 7) as u32 {
            let stack: Vec<Number> = (0..256).map(|_| Ok(number)).collect();
            stacks.add(thread, &Rc::from(stack), State::Works);
        }
        assert_eq!((stacks.left_out(), stacks.stacks.len()), (7, FRAMES / 256));
    }
}
