//! Finds the threads of a Python runtime, and the code objects on a thread's stack.
//!
//! The process keeps running, and may be hostile. So we bound everything that we read, and drop unreadable
//! data.

use super::{
    code::Codes,
    functions::{Functions, Number},
    layout::Layout,
    memory::{Moment, Source, word},
};

/// The most interpreters that we visit in a process.
const INTERPRETERS: usize = 64;
/// The most threads that we visit in a process.
pub(super) const THREADS: usize = 2_048;
/// The most frames that we read of a stack, the innermost first.
pub(super) const FRAMES: usize = 256;
/// The most frames of a stack, including frames without Python code. We skip frames without Python code; a
/// stack never has more of them than of other frames.
const ALL_FRAMES: usize = 2 * FRAMES;
/// A frame with this owner or a greater one has no Python code (`FRAME_OWNED_BY_CSTACK` or `_INTERPRETER`).
const NO_CODE: u8 = 3;
/// How often we read a stack again if it changes while we read it. If no read is usable, the time that the
/// thread ran since its last sample belongs to no function. Beside other programs this may be a large part of
/// the time: these programs keep us from sampling, and let a stack change between two reads.
const READS: usize = 4;
/// From 3.14 on, references on the interpreter's stack have a tag in their low bits.
const TAG: u64 = 7;

/// The state of a thread in Python's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ThreadState {
    pub(super) address: u64,
    /// See [`ThreadLayout`](super::layout::ThreadLayout).
    pub(super) description: u64,
    pub(super) number: Option<u64>,
}

/// The error for an inconsistent stack: it changed while we read it, or the process has put wrong data there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torn;

/// The thread states in all interpreters.
pub(super) fn threads<S: Source>(
    memory: &mut Moment<S>,
    layout: &Layout,
    runtime: u64,
) -> Result<Vec<ThreadState>, Torn> {
    let mut found: Vec<ThreadState> = Vec::new();
    let at = |base: u64, offset: u64| base.checked_add(offset).ok_or(Torn);
    let mut interpreter = memory.word(at(runtime, layout.interpreters)?).ok_or(Torn)?;
    for _ in 0..INTERPRETERS {
        if interpreter == 0 {
            break;
        }
        let mut thread = memory.word(at(interpreter, layout.threads)?).ok_or(Torn)?;
        while thread != 0 {
            let description = memory.word(at(thread, layout.thread.description)?).ok_or(Torn)?;
            let number = match layout.thread.number {
                Some(offset) => Some(memory.word(at(thread, offset)?).ok_or(Torn)?),
                None => None,
            };
            // There cannot be more threads: the list must be a loop.
            if found.len() == THREADS {
                return Err(Torn);
            }
            found.push(ThreadState { address: thread, description, number });
            thread = memory.word(at(thread, layout.thread.next)?).ok_or(Torn)?;
        }
        interpreter = memory.word(at(interpreter, layout.next_interpreter)?).ok_or(Torn)?;
    }
    Ok(found)
}

/// The addresses of the code objects on a thread's stack, the innermost first. Empty if the thread executes
/// no Python code.
pub(super) fn stack<S: Source>(
    memory: &mut Moment<S>,
    layout: &Layout,
    thread: u64,
) -> Result<Vec<u64>, Torn> {
    let at = |base: u64, offset: u64| base.checked_add(offset).ok_or(Torn);
    let mut frame = memory.word(at(thread, layout.thread.frame)?).ok_or(Torn)?;
    if let (Some(offset), true) = (layout.thread.in_cframe, frame != 0) {
        frame = memory.word(at(frame, offset)?).ok_or(Torn)?;
    }
    let mut bytes = vec![0; layout.frame.size()];
    let (mut codes, mut frames) = (Vec::new(), Vec::new());
    while frame != 0 && codes.len() < FRAMES {
        if frames.len() == ALL_FRAMES || frame % 8 != 0 || frames.contains(&frame) {
            return Err(Torn);
        }
        frames.push(frame);
        memory.read(frame, &mut bytes).ok_or(Torn)?;
        let owner = layout.frame.owner.map(|at| bytes.get(at as usize).copied().unwrap_or(0));
        if owner.is_none_or(|owner| owner < NO_CODE) {
            codes.push(word(&bytes, layout.frame.code).ok_or(Torn)? & !TAG);
        }
        frame = word(&bytes, layout.frame.previous).ok_or(Torn)?;
    }
    Ok(codes)
}

/// The functions on a thread's stack, the innermost first.
pub(super) fn functions<S: Source>(
    memory: &mut Moment<S>,
    layout: &Layout,
    thread: u64,
    codes: &mut Codes,
    functions: &mut Functions,
) -> Result<Vec<Number>, Torn> {
    for read in 1..=READS {
        let stack = stack(memory, layout, thread);
        match stack.and_then(|stack| codes.functions(memory.source(), &stack, functions)) {
            Err(Torn) if read < READS => memory.forget(),
            numbers => return numbers,
        }
    }
    Err(Torn)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::{bounds::Budget, python::version::PythonVersion};

    /// Memory of words at small addresses, so that random words often contain addresses of other words.
    #[derive(Debug)]
    struct Words(Vec<u64>);

    const BASE: u64 = 0x1_0000;

    impl Source for Words {
        fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
            let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let Some(at) = address.checked_sub(BASE) else { return 0 };
            let bytes = bytes.get(at as usize..).unwrap_or_default();
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            length
        }
    }

    fn layouts() -> Vec<Layout> {
        (8..=12).filter_map(|minor| Layout::for_version(PythonVersion::new(3, minor))).collect()
    }

    #[test]
    fn frames_are_followed_to_the_first() {
        let layout = Layout::for_version(PythonVersion::new(3, 12)).unwrap();
        let mut words = vec![0; 512];
        // The first word of the thread's cframe leads to its frame. The caller of that frame has no Python
        // code.
        words[7] = BASE + 0x200;
        words[0x40] = BASE + 0x400;
        let mut frame = |at: usize, previous: u64, code: u64, owner: u64| {
            words[at / 8] = code;
            words[at / 8 + 1] = previous;
            words[at / 8 + 8] = owner << 48;
        };
        frame(0x400, BASE + 0x500, 0x7000, 0);
        frame(0x500, BASE + 0x600, 0x8000, 3);
        frame(0x600, 0, 0x9001, 1);
        let mut memory = Moment::new(Words(words.clone()));
        assert_eq!(stack(&mut memory, &layout, BASE), Ok(vec![0x7000, 0x9000]));
        // A frame whose caller is the frame itself is invalid.
        words[0x600 / 8 + 1] = BASE + 0x400;
        assert_eq!(stack(&mut Moment::new(Words(words.clone())), &layout, BASE), Err(Torn));
        // A thread without frames.
        words[7] = 0;
        assert_eq!(stack(&mut Moment::new(Words(words)), &layout, BASE), Ok(Vec::new()));
    }

    /// Memory that has other contents at each read. The last contents stay.
    struct Changing(Vec<Words>);

    impl Source for Changing {
        fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
            let now = if self.0.len() > 1 { self.0.remove(0) } else { Words(self.0[0].0.clone()) };
            Words(now.0).read(address, buffer)
        }
    }

    #[test]
    fn a_stack_that_changes_meanwhile_is_read_again() {
        let layout = Layout::for_version(PythonVersion::new(3, 12)).unwrap();
        let mut torn = vec![0; 512];
        torn[7] = BASE + 0x200;
        torn[0x40] = BASE + 0x400;
        torn[0x408 / 8] = BASE + 0x400;
        let whole = || Words(vec![0; 512]);
        for (torn_reads, expected) in [(0, Ok(0)), (READS - 1, Ok(0)), (READS, Err(Torn))] {
            let torn = (0..torn_reads).map(|_| Words(torn.clone()));
            let mut memory = Moment::new(Changing(torn.chain([whole()]).collect()));
            let (mut codes, mut seen) = (Codes::new(layout, &Budget::new(64)), Functions::default());
            let read = functions(&mut memory, &layout, BASE, &mut codes, &mut seen);
            assert_eq!(read.map(|stack| stack.len()), expected, "torn {torn_reads} times");
        }
    }

    proptest! {
        /// Whatever the memory contains, reading ends, within bounds.
        #[test]
        fn no_memory_hangs_or_panics(
            words in prop::collection::vec(
                prop_oneof![
                    6 => (0..512_u64).prop_map(|at| BASE + at * 8),
                    1 => Just(0),
                    1 => any::<u64>(),
                ],
                64..512,
            ),
        ) {
            for layout in layouts() {
                let mut memory = Moment::new(Words(words.clone()));
                let found = threads(&mut memory, &layout, BASE).unwrap_or_default();
                prop_assert!(found.len() <= THREADS);
                let (mut codes, mut functions) = (Codes::new(layout, &Budget::new(64)), Functions::default());
                for thread in found.iter().take(16).map(|thread| thread.address).chain([BASE]) {
                    let Ok(stack) = stack(&mut memory, &layout, thread) else { continue };
                    prop_assert!(stack.len() <= FRAMES);
                    let _ = codes.functions(memory.source(), &stack, &mut functions);
                }
            }
        }
    }
}
