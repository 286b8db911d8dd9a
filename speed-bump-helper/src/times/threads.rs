//! Finds the running thread's stack.
//!
//! Threads are told apart by their thread pointer, which needs no thread-local storage. A table of fixed size
//! has a slot for each thread that is in a timed call. Threads reuse slots of threads that are not, so the
//! table only needs slots for those in timed calls at the same time.
//!
//! The table is wiped in forked children: the calls in progress are the parent's. Stacks are the helper's own
//! memory, one for each slot in use, allocated when a thread takes the slot, and absent in children.

use core::{
    mem::{align_of, size_of},
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
};

use super::stack::{Call, DEPTH, Stack};
use crate::{arch, sys};

/// The most threads that can be in timed calls at the same time. In rare cases there is room for fewer: a
/// thread has room only in two buckets, which may fill up earlier.
const SLOTS: usize = 1024;
/// Slots of a bucket: two cache lines.
const BUCKET: usize = 8;
const BUCKETS: usize = SLOTS / BUCKET;
/// Two odd numbers that hash a thread to its two buckets.
const FACTORS: [usize; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];
/// A bit in a slot's key: its thread is in no timed call. Thread pointers are even.
const IDLE: usize = 1;

/// A thread and its stack.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Slot {
    /// The thread pointer, and [`IDLE`]. 0: free.
    key: AtomicUsize,
    memory: AtomicPtr<Memory>,
}

/// A stack in memory. The levels of functions and of pairs come after it.
#[repr(C)]
struct Memory {
    /// The session that it belongs to.
    session: u32,
    levels: u32,
    depth: usize,
    calls: [Call; DEPTH],
}

/// The table, once it is allocated.
static TABLE: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

/// The capacity of stacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) session: u32,
    /// How many functions and pairs of functions there can be.
    pub(super) levels: u32,
    /// Whether several threads may do this at the same time: there is no GIL, or several.
    pub(super) at_once: bool,
}

/// Allocates the table, once per process.
pub(super) fn prepare() -> Result<(), sys::Errno> {
    if !TABLE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let table = sys::allocate(size_of::<Slot>() * SLOTS)?;
    sys::wipe_on_fork(table, size_of::<Slot>() * SLOTS)?;
    TABLE.store(table.as_ptr().cast(), Ordering::Release);
    Ok(())
}

/// Frees all stacks. No thread may use one; if there is a GIL, the caller must hold it.
pub(super) fn free_all() {
    for slot in table().unwrap_or_default() {
        slot.free();
        slot.key.store(0, Ordering::Release);
    }
}

fn table() -> Option<&'static [Slot]> {
    let table = TABLE.load(Ordering::Acquire);
    // SAFETY: null, or this many slots, zeroed at first, which are never freed and change by atomics alone.
    (!table.is_null()).then(|| unsafe { slice::from_raw_parts(table, SLOTS) })
}

/// The two buckets of a thread.
#[inline]
fn buckets(table: &'static [Slot], thread: usize) -> [&'static [Slot]; 2] {
    FACTORS.map(|factor| {
        let bucket = (thread.wrapping_mul(factor) >> 32) % BUCKETS;
        table.get(bucket * BUCKET..(bucket + 1) * BUCKET).unwrap_or_default()
    })
}

#[inline]
fn find(table: &'static [Slot], thread: usize) -> Option<&'static Slot> {
    let is_its_own = |slot: &&Slot| slot.key.load(Ordering::Relaxed) & !IDLE == thread;
    buckets(table, thread).into_iter().find_map(|bucket| bucket.iter().find(is_its_own))
}

/// The slot of the running thread, if it is in a timed call.
#[inline]
pub(super) fn busy() -> Option<&'static Slot> {
    let thread = arch::thread_pointer();
    find(table()?, thread).filter(|slot| slot.key.load(Ordering::Relaxed) == thread)
}

/// The slot of the running thread, which is about to enter a timed call, with a stack of this session.
/// `None`: there is no room.
#[inline]
pub(super) fn take(room: Room) -> Option<&'static Slot> {
    take_for(arch::thread_pointer(), room)
}

#[inline]
fn take_for(thread: usize, room: Room) -> Option<&'static Slot> {
    let table = table()?;
    let found = find(table, thread).filter(|slot| slot.wake(thread, room.at_once));
    let slot = match found {
        Some(slot) => slot,
        None => claim(table, thread)?,
    };
    // SAFETY: null, or memory that only this thread uses.
    match unsafe { slot.memory.load(Ordering::Relaxed).as_ref() } {
        Some(memory) if memory.session == room.session => Some(slot),
        _ => slot.renew(thread, room),
    }
}

/// A slot that is free, or belongs to a thread in no timed call.
#[cold]
fn claim(table: &'static [Slot], thread: usize) -> Option<&'static Slot> {
    let all = || buckets(table, thread).into_iter().flatten();
    let free = all().find(|slot| slot.try_claim(0, thread));
    free.or_else(|| {
        all().find(|slot| {
            let key = slot.key.load(Ordering::Relaxed);
            key & IDLE != 0 && slot.try_claim(key, thread)
        })
    })
}

impl Slot {
    fn try_claim(&self, before: usize, thread: usize) -> bool {
        self.key.compare_exchange(before, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the slot belongs to this thread; from here on it is in a timed call. With one GIL, no other
    /// thread can take the slot meanwhile.
    #[inline]
    fn wake(&self, thread: usize, at_once: bool) -> bool {
        let key = self.key.load(Ordering::Relaxed);
        if key == thread {
            return true;
        }
        if at_once {
            return key == thread | IDLE && self.try_claim(key, thread);
        }
        self.key.store(thread, Ordering::Relaxed);
        true
    }

    /// The stack, for the slot's thread. `None`: there is none, or it belongs to another session.
    #[inline]
    pub(super) fn stack(&self, session: u32) -> Option<Stack<'_>> {
        // SAFETY: null, or memory that only this thread uses, and for one thing at a time.
        let memory = unsafe { self.memory.load(Ordering::Relaxed).as_mut() }?;
        if memory.session != session {
            return None;
        }
        // SAFETY: the levels come after it, zeroed at first, and there are this many.
        let levels = unsafe {
            let start = ptr::from_mut(memory).add(1).cast::<u16>();
            slice::from_raw_parts_mut(start, memory.levels as usize)
        };
        Some(Stack { calls: &mut memory.calls, levels, depth: &mut memory.depth })
    }

    /// Lets other threads take the slot, if its thread is no longer in a timed call.
    #[inline]
    pub(super) fn rest(&self, depth: usize) {
        if depth == 0 {
            let key = self.key.load(Ordering::Relaxed);
            self.key.store(key | IDLE, Ordering::Release);
        }
    }

    /// An empty stack, for the session.
    #[cold]
    fn renew(&'static self, thread: usize, room: Room) -> Option<&'static Self> {
        self.free();
        let length = bytes(room.levels);
        let Ok(memory) = sys::allocate(length) else {
            self.key.store(thread | IDLE, Ordering::Release);
            return None;
        };
        // A child that has it anyway does not use it.
        let _ = sys::not_in_children(memory, length);
        let memory: NonNull<Memory> = memory.cast();
        // SAFETY: zeroed memory of this length, aligned to pages, and no other code has its address.
        unsafe {
            (&raw mut (*memory.as_ptr()).session).write(room.session);
            (&raw mut (*memory.as_ptr()).levels).write(room.levels);
        }
        self.memory.store(memory.as_ptr(), Ordering::Relaxed);
        Some(self)
    }

    fn free(&self) {
        let Some(memory) = NonNull::new(self.memory.swap(ptr::null_mut(), Ordering::Relaxed)) else { return };
        // SAFETY: allocated with this length, and nothing refers to it any more.
        unsafe {
            let length = bytes((*memory.as_ptr()).levels);
            sys::free(memory.cast(), length);
        }
    }
}

/// The size of a stack with this many levels.
fn bytes(levels: u32) -> usize {
    const { assert!(align_of::<Memory>() >= align_of::<u16>()) };
    (size_of::<Memory>() + levels as usize * size_of::<u16>()).next_multiple_of(sys::PAGE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::stack::NO_PAIR, *};

    const ROOM: Room = Room { session: 1, levels: 8, at_once: true };

    /// A table for the test: the real one is for real threads.
    fn a_table() -> &'static [Slot] {
        let table = sys::allocate(size_of::<Slot>() * SLOTS).unwrap();
        // SAFETY: this many zeroed slots, never freed.
        unsafe { slice::from_raw_parts(table.as_ptr().cast(), SLOTS) }
    }

    fn taken(table: &'static [Slot], thread: usize) -> Option<&'static Slot> {
        let found = find(table, thread).filter(|slot| slot.wake(thread, true));
        let slot = found.or_else(|| claim(table, thread))?;
        if slot.stack(ROOM.session).is_some() { Some(slot) } else { slot.renew(thread, ROOM) }
    }

    #[test]
    fn a_thread_finds_its_stack_again() {
        let table = a_table();
        for thread in (0x1000..0x1000 * 200).step_by(0x1000) {
            let slot = taken(table, thread).unwrap();
            slot.stack(1).unwrap().enter(thread, 3, NO_PAIR, 5).unwrap();
        }
        for thread in (0x1000..0x1000 * 200).step_by(0x1000) {
            let slot = taken(table, thread).unwrap();
            let mut stack = slot.stack(1).unwrap();
            assert_eq!(stack.leave_last(thread, 9).unwrap().total, 4);
            assert_eq!((*stack.depth, &stack.levels[..]), (0, &[0; 8][..]));
            assert!(slot.stack(2).is_none(), "of another session");
            slot.free();
        }
    }

    #[test]
    fn slots_of_threads_at_rest_are_for_others_and_no_others_are() {
        let table = a_table();
        let mut at_work = Vec::new();
        let mut refused = None;
        for thread in (0x40..).step_by(0x40) {
            match taken(table, thread) {
                Some(slot) => at_work.push((thread, slot)),
                None => {
                    refused = Some(thread);
                    break;
                }
            }
        }
        let refused = refused.unwrap();
        assert!(at_work.len() > SLOTS / 2, "{}", at_work.len());
        // No thread lost a slot to another.
        assert!(at_work.iter().all(|(thread, slot)| slot.key.load(Ordering::Relaxed) == *thread));
        at_work.iter().for_each(|(_, slot)| slot.rest(0));
        let slot = taken(table, refused).unwrap();
        let (loser, _) = at_work.iter().find(|(_, other)| ptr::eq(*other, slot)).unwrap();
        assert!(find(table, *loser).is_none());
        at_work.iter().for_each(|(_, slot)| slot.free());
    }

    #[test]
    fn threads_take_turns_and_never_share_a_slot() {
        let table = a_table();
        std::thread::scope(|scope| {
            for worker in 0..4_usize {
                scope.spawn(move || {
                    for round in 0..20_000_usize {
                        // Nearly all in one bucket, so that they take each other's slots.
                        let thread = (worker * 64 + round % 16 + 1) << 8;
                        let Some(slot) = taken(table, thread) else { continue };
                        assert_eq!(slot.key.load(Ordering::Relaxed), thread);
                        let mut stack = slot.stack(1).unwrap();
                        assert_eq!(*stack.depth, 0);
                        stack.enter(thread, 1, NO_PAIR, 0).unwrap();
                        assert_eq!(stack.leave_last(thread, 1).unwrap().total, 1);
                        slot.rest(*stack.depth);
                    }
                });
            }
        });
        table.iter().for_each(Slot::free);
    }

    #[test]
    fn the_running_thread_has_a_slot_of_its_own() {
        prepare().unwrap();
        let own = || {
            let slot = take(ROOM).unwrap();
            assert!(ptr::eq(busy().unwrap(), slot));
            slot.rest(0);
            assert!(busy().is_none());
            ptr::from_ref(slot) as usize
        };
        // Both at the same time, so that their pointers differ.
        let barrier = std::sync::Barrier::new(2);
        let both = || {
            let slot = own();
            barrier.wait();
            slot
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(both);
            (both(), other.join().unwrap())
        });
        assert_ne!(one, other);
    }
}
