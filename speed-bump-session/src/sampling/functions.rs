//! The Python functions of all processes, with their samples.
//!
//! A process can have any number of functions, with any names, and new ones all the time. So all processes
//! share one table, with limited room for functions and for bytes of names. The table has a function once,
//! even if it occurs in several processes. If there is no room for a function, we leave it out. Samples that
//! end in this function belong to no function, and we report their number.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    rc::Rc,
};

use super::{
    profile::{FunctionSeen, LeftOut, THREADS_TOLD, ThreadOf},
    state::State,
    whole_stacks::WholeStacks,
};
use crate::{bounds::NAMES_OF_SESSION, units::Nanos};

/// The most functions in the table. A program of a million lines has about 50,000 functions.
const FUNCTIONS: usize = 1 << 16;
/// The most bytes for the names and files of functions.
const NAMES: usize = NAMES_OF_SESSION;
/// The most entries for threads, over all functions: 8 per function.
const THREADS: usize = 8 * FUNCTIONS;

/// A Python function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PythonFunction {
    /// `co_filename`
    pub(super) file: String,
    /// `co_qualname`, or `co_name` before 3.11.
    pub(super) name: String,
    /// `co_firstlineno`
    pub(super) line: u32,
}

/// The number of a function in the table, or the reason for leaving it out.
pub(super) type Number = Result<u32, LeftOut>;

/// The counts of a function.
#[derive(Debug, Default)]
struct Tally {
    own: u64,
    running: Nanos,
    anywhere: u64,
    anywhere_running: Nanos,
    /// For each thread, the number of samples in which the function was the innermost. The list is incomplete
    /// if there are many threads.
    threads: BTreeMap<ThreadOf, u64>,
    /// The number of functions on the stack outside of this function (its caller, the caller of that, and so
    /// on), added up over all samples with the function.
    above: u64,
}

/// A function in the table.
#[derive(Debug)]
struct Known {
    function: Rc<PythonFunction>,
    is_qualified: bool,
    tally: Tally,
}

/// The functions of all processes.
#[derive(Debug, Default)]
pub(super) struct Functions {
    numbers: HashMap<Rc<PythonFunction>, u32>,
    known: Vec<Known>,
    name_bytes: usize,
    threads: usize,
    /// The number of samples that end in a function that we left out, by reason.
    left_out: BTreeMap<LeftOut, u64>,
    left_out_running: Nanos,
    /// The outermost position of each function in a stack. We use this list again for each sample.
    outermost: Vec<(u32, usize)>,
    pub(super) stacks: WholeStacks,
}

impl Functions {
    /// The number of a function. Adds the function if it is new and there is room.
    pub(super) fn number(&mut self, function: PythonFunction, is_qualified: bool) -> Number {
        if let Some(number) = self.numbers.get(&function) {
            return Ok(*number);
        }
        let bytes = function.file.len() + function.name.len();
        if self.known.len() == FUNCTIONS || self.name_bytes + bytes > NAMES {
            return Err(LeftOut::TooMany);
        }
        let number = u32::try_from(self.known.len()).map_err(|_| LeftOut::TooMany)?;
        self.name_bytes += bytes;
        let function = Rc::new(function);
        self.numbers.insert(Rc::clone(&function), number);
        self.known.push(Known { function, is_qualified, tally: Tally::default() });
        Ok(number)
    }

    /// Adds a sample of a thread: the functions on its stack, the innermost first, and what the thread does
    /// now. The thread has run for `running` since its last sample.
    pub(super) fn add(&mut self, stack: &Rc<[Number]>, thread: ThreadOf, running: Nanos, state: State) {
        self.stacks.add(thread, stack, state);
        if let Some(Err(why)) = stack.first() {
            *self.left_out.entry(*why).or_default() += 1;
            self.left_out_running = self.left_out_running + running;
        }
        // A recursive function is on the stack several times.
        let mut outermost = std::mem::take(&mut self.outermost);
        outermost.clear();
        for (place, number) in stack.iter().enumerate() {
            let Ok(number) = number else { continue };
            let Some(tally) = self.known.get_mut(*number as usize).map(|known| &mut known.tally) else {
                continue;
            };
            let known = outermost.iter_mut().find(|(known, _)| known == number);
            let is_first = known.is_none();
            match known {
                Some((_, outermost)) => *outermost = place,
                None => outermost.push((*number, place)),
            }
            if is_first {
                tally.anywhere += 1;
                tally.anywhere_running = tally.anywhere_running + running;
                let has_room = tally.threads.len() < THREADS_TOLD && self.threads < THREADS;
                if has_room && !tally.threads.contains_key(&thread) {
                    tally.threads.insert(thread, 0);
                    self.threads += 1;
                }
            }
            if place == 0 {
                tally.own += 1;
                tally.running = tally.running + running;
                if let Some(samples) = tally.threads.get_mut(&thread) {
                    *samples += 1;
                }
            }
        }
        for (number, place) in &outermost {
            if let Some(known) = self.known.get_mut(*number as usize) {
                known.tally.above += (stack.len() - 1 - place) as u64;
            }
        }
        self.outermost = outermost;
    }

    /// How many samples ended in functions that we left out, and how long their threads had run.
    pub(super) fn left_out(&self) -> (BTreeMap<LeftOut, u64>, Nanos) {
        (self.left_out.clone(), self.left_out_running)
    }

    /// The results for each function, by number, and the stacks.
    pub(super) fn seen(self) -> (Vec<FunctionSeen>, WholeStacks) {
        drop(self.numbers);
        let seen = |Known { function, is_qualified, tally }: Known| {
            let PythonFunction { file, name, line } = Rc::unwrap_or_clone(function);
            FunctionSeen {
                file: PathBuf::from(file),
                name,
                line: Some(line),
                own: tally.own,
                running: tally.running,
                anywhere: tally.anywhere,
                anywhere_running: tally.anywhere_running,
                is_qualified,
                is_everybodys: false,
                // The mean number of functions outside of this one, rounded. If a stack changes while we read
                // it, we may get only a part of it. Such rare parts do not change the rounded mean.
                depth: (tally.above + tally.anywhere / 2).checked_div(tally.anywhere).unwrap_or(0) as u32,
                threads: tally.threads,
            }
        };
        (self.known.into_iter().map(seen).collect(), self.stacks)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::units::Pid;

    fn function(name: &str) -> PythonFunction {
        PythonFunction { file: "/a.py".to_owned(), name: name.to_owned(), line: 1 }
    }

    fn thread(number: i32) -> ThreadOf {
        ThreadOf { process: Pid::new(number).unwrap(), thread: Pid::new(number).unwrap() }
    }

    #[test]
    fn functions_of_several_processes_are_one() {
        let mut functions = Functions::default();
        let inner = functions.number(function("inner"), true);
        let outer = functions.number(function("outer"), true);
        assert_eq!(functions.number(function("inner"), true), inner);
        functions.add(&Rc::from([inner, outer]), thread(1), Nanos(5), State::Works);
        functions.add(&Rc::from([inner, inner, outer]), thread(2), Nanos(7), State::Works);
        functions.add(&Rc::from([Err(LeftOut::NoName), outer]), thread(2), Nanos(3), State::Works);
        assert_eq!(functions.left_out(), (BTreeMap::from([(LeftOut::NoName, 1)]), Nanos(3)));
        let (seen, _) = functions.seen();
        let [inner, outer] = &seen[..] else { unreachable!("{seen:?}") };
        assert_eq!((inner.own, inner.running, inner.anywhere, inner.depth), (2, Nanos(12), 2, 1));
        assert_eq!((outer.own, outer.anywhere_running, outer.anywhere, outer.depth), (0, Nanos(15), 3, 0));
        assert_eq!(inner.threads, BTreeMap::from([(thread(1), 1), (thread(2), 1)]));
        assert_eq!(outer.threads, BTreeMap::from([(thread(1), 0), (thread(2), 0)]));
    }

    #[test]
    fn names_and_functions_end_where_their_room_does() {
        let mut functions = Functions::default();
        let long = |number: usize| function(&format!("{number:04095}"));
        let fitting = (0..).take_while(|number| functions.number(long(*number), true).is_ok()).count();
        assert_eq!(fitting, NAMES / (4_095 + "/a.py".len()));
        assert_eq!(functions.number(long(fitting), true), Err(LeftOut::TooMany));
        assert_eq!(functions.number(long(0), true), Ok(0), "what is known stays");
        let mut functions = Functions::default();
        let fitting = (0..).take_while(|of| functions.number(function(&of.to_string()), true).is_ok());
        assert_eq!(fitting.count(), FUNCTIONS);
    }
}
