//! `--times`: how long calls of selected functions take, with their callees and without.
//!
//! The hooks and callbacks report when a call starts or resumes ([`enter`]) and when it ends or is suspended
//! ([`leave`]). Calls in progress are on a stack for each thread; ended calls are added to the rows of the
//! control block. Calls in progress when a session starts or a child is forked are not timed.
//!
//! The loader switches timing on for stretches of a session, and each process listens to the ends of calls
//! for one stretch. A forked child that has not taken up the loader's stretch times nothing, because it would
//! not hear of the ends of calls.
//!
//! If callers are recorded, the hook or callback that reports a call reports the calling frame too. The call
//! is counted when it ends, also for its caller.

mod stack;
mod threads;

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use speed_bump_abi::{
    callers::{CallerRow, has_row, row_of},
    control_block::{Clock, Failure},
    times::TimeRow,
};

use self::{
    stack::{Call, Ended, NO_PAIR, PASSED_OVER, Stack},
    threads::{Room, Slot},
};
use crate::{
    block::{Block, BlockCallers, BlockTimes},
    clock,
    fault::Fault,
    life, locks,
    stub::{self, Ticks},
};

/// How a call begins to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It starts.
    Begins,
    /// A generator or coroutine resumes, also with an exception.
    Resumes,
}

/// The session of the calls in progress, which all belong to one session and to one stretch of it.
static SESSION: AtomicU32 = AtomicU32::new(0);
/// The stretch of timed calls that this process listens for; 0: none.
static STRETCH: AtomicU32 = AtomicU32::new(0);

/// Whether calls are timed here, by the stretch that the loader wants.
#[inline]
pub(crate) fn is_on(wanted: u32) -> bool {
    wanted != 0 && wanted == STRETCH.load(Ordering::Relaxed)
}

/// Prepares for a session, if that wants times now.
///
/// # Errors
/// [`Failure::Unsupported`]: there is no memory.
pub(crate) fn begin() -> Result<(), Fault> {
    let stretch = Block::current().map_or(0, Block::stretch);
    if stretch != 0 {
        SESSION.fetch_add(1, Ordering::AcqRel);
        let no_memory = |_| Fault::new(Failure::Unsupported, &["there is no memory to time calls with"]);
        threads::prepare().map_err(no_memory)?;
    }
    STRETCH.store(stretch, Ordering::Release);
    Ok(())
}

/// Takes up the stretch that the loader wants now. The caller holds the GIL. Returns whether the stretch is
/// another one: then the caller listens to other events.
///
/// # Errors
/// As [`begin`].
pub(crate) fn follow() -> Result<bool, Fault> {
    let is_same = STRETCH.load(Ordering::Acquire) == Block::current().map_or(0, Block::stretch);
    if !is_same {
        end();
        begin()?;
    }
    Ok(!is_same)
}

/// Frees what the session needed. Needs the GIL. If other threads may run without it, their stacks stay, and
/// each is freed when it is used in the next session that times calls.
pub(crate) fn end() {
    STRETCH.store(0, Ordering::Release);
    SESSION.fetch_add(1, Ordering::AcqRel);
    if !locks::may_be_several() {
        threads::free_all();
    }
}

/// A call that has just started to be timed.
pub(crate) struct Timed {
    call: NonNull<Call>,
    clock: Clock,
}

impl Timed {
    /// Sets the start of the call to now. Must follow at once, on the call's thread: if the interpreter's
    /// lock was given up in between, the session may be over.
    #[inline]
    pub(crate) fn begins_now(self) {
        let now = now(self.clock, stub::now());
        // SAFETY: on the thread's own stack, which is not freed in between: the caller holds the lock, as
        // documented above.
        unsafe { self.call.as_ptr().as_mut() }.into_iter().for_each(|call| call.begin_at(now));
    }
}

/// A call that starts or resumes.
#[derive(Clone, Copy)]
pub(crate) struct Entering {
    /// [`leave`] recognises the call by it.
    pub(crate) identity: usize,
    pub(crate) kind: Kind,
    /// When the helper heard of it.
    pub(crate) began: Ticks,
}

/// A call of a function starts or resumes. `caller` finds the number of the calling function; it is called
/// only if callers are recorded.
#[inline]
pub(crate) fn enter(
    block: Block,
    function: u32,
    entering: Entering,
    caller: impl FnOnce() -> Option<u32>,
) -> Option<Timed> {
    let times = block.times()?;
    let Entering { identity, kind, began } = entering;
    if !times.in_children() && !life::is_claimed() {
        return None;
    }
    let row = times.row(function)?;
    if kind == Kind::Resumes {
        row.resumed.fetch_add(1, Ordering::Relaxed);
    }
    let pair = block.callers().map_or(NO_PAIR, |callers| pair(block, callers, caller(), function));
    let room = room(block);
    let slot = threads::take(room);
    let mut stack = slot.and_then(|slot| slot.stack(room.session));
    let start = now(times.clock(), began);
    let entered = stack.as_mut().and_then(|stack| stack.enter(identity, function, pair, start));
    let Some(entered) = entered else {
        count(&block.head().times_without_room, 1);
        return None;
    };
    if entered.recursive {
        let recursive = if kind == Kind::Begins { &row.recursive } else { &row.recursive_resumed };
        recursive.fetch_add(1, Ordering::Relaxed);
    }
    Some(Timed { call: NonNull::from(entered.call), clock: times.clock() })
}

/// A call starts or resumes that no target covers, while other calls of its function are timed. Its end looks
/// like the end of a timed call of that function, and must not end one. Its time counts for its caller.
pub(crate) fn pass_over(block: Block, identity: usize, began: Ticks) {
    let Some(times) = block.times() else { return };
    if !times.in_children() && !life::is_claimed() {
        return;
    }
    let room = room(block);
    let slot = threads::take(room);
    if let Some(mut stack) = slot.and_then(|slot| slot.stack(room.session)) {
        stack.enter(identity, PASSED_OVER, NO_PAIR, now(times.clock(), began));
    }
}

/// Ends the call that started last on this thread, if it is this one: it returns, raises, or is suspended.
/// `ended` is [`stub::now`] when the helper heard of it.
#[inline]
pub(crate) fn leave(block: Block, identity: usize, ended: Ticks) -> bool {
    let Some((times, slot, mut stack)) = in_progress(block) else { return false };
    let Some(call) = stack.leave_last(identity, now(times.clock(), ended)) else { return false };
    slot.rest(*stack.depth);
    add(block, times, call);
    true
}

/// Ends a call of a selected function that is not the one that started last.
#[cold]
pub(crate) fn leave_out_of_turn(block: Block, identity: usize, ended: Ticks) {
    let Some((times, slot, mut stack)) = in_progress(block) else { return };
    let (call, dropped) = stack.leave_below(identity, now(times.clock(), ended));
    slot.rest(*stack.depth);
    count(&block.head().times_unmatched, dropped.into());
    if let Some(call) = call {
        add(block, times, call);
    }
}

/// Runs through the timing of a call once, without a function, so that a delay can correct for the time.
pub(crate) fn rehearse(block: Block) {
    static NOWHERE: TimeRow = TimeRow::NEW;
    static NO_CALLER: CallerRow = CallerRow::NEW;
    const NOBODY: usize = 1;
    let Some(times) = block.times() else { return };
    let room = room(block);
    let begun = threads::take(room).and_then(|slot| slot.stack(room.session));
    if let Some(mut stack) = begun
        && let Some(entered) =
            stack.enter(NOBODY, u32::MAX, no_ones_pair(block, room), now(times.clock(), stub::now()))
    {
        entered.call.begin_at(now(times.clock(), stub::now()));
    }
    if let Some((times, slot, mut stack)) = in_progress(block)
        && let Some(call) = stack.leave_last(NOBODY, now(times.clock(), stub::now()))
    {
        slot.rest(*stack.depth);
        add_to(&NOWHERE, call);
        if block.callers().is_some() {
            add_to_pair(&NO_CALLER, call);
        }
    }
}

/// The capacity of stacks in this session.
#[inline]
fn room(block: Block) -> Room {
    let pairs = block.callers().map_or(0, BlockCallers::capacity);
    Room {
        session: SESSION.load(Ordering::Relaxed),
        // One level more is of no pair, for the rehearsal.
        levels: block.capacity().saturating_add(pairs).saturating_add(1),
        at_once: locks::may_be_several(),
    }
}

/// The running thread's calls in progress, while the session runs.
#[inline]
fn in_progress(block: Block) -> Option<(BlockTimes, &'static Slot, Stack<'static>)> {
    let times = block.times()?;
    if !block.has_session() {
        return None;
    }
    let slot = threads::busy()?;
    Some((times, slot, slot.stack(SESSION.load(Ordering::Relaxed))?))
}

/// The level of a starting function and its caller, as a pair.
#[inline]
fn pair(block: Block, callers: BlockCallers, caller: Option<u32>, function: u32) -> u32 {
    let Some(caller) = caller else { return NO_PAIR };
    match row_of(callers.rows(), caller, function) {
        Some(number) => block.capacity().saturating_add(number as u32),
        None => {
            block.leave_out_caller();
            NO_PAIR
        }
    }
}

/// The level for no pair: the last one.
#[inline]
fn no_ones_pair(block: Block, room: Room) -> u32 {
    match block.callers() {
        Some(callers) if !has_row(callers.rows(), 0, u32::MAX) => room.levels.saturating_sub(1),
        _ => NO_PAIR,
    }
}

#[inline]
fn add(block: Block, times: BlockTimes, call: Ended) {
    if let Some(row) = times.row(call.function) {
        add_to(row, call);
    }
    if call.pair != NO_PAIR
        && let Some(callers) = block.callers()
        && let Some(row) = callers.rows().get(call.pair.wrapping_sub(block.capacity()) as usize)
    {
        add_to_pair(row, call);
    }
}

#[inline]
fn add_to(row: &TimeRow, call: Ended) {
    row.own.fetch_add(call.own, Ordering::Relaxed);
    if call.is_outermost {
        row.cumulative.fetch_add(call.total, Ordering::Relaxed);
    }
}

#[inline]
fn add_to_pair(row: &CallerRow, call: Ended) {
    row.calls.fetch_add(1, Ordering::Relaxed);
    row.own.fetch_add(call.own, Ordering::Relaxed);
    if call.is_outermost_of_pair {
        row.cumulative.fetch_add(call.total, Ordering::Relaxed);
    } else {
        row.recursive.fetch_add(1, Ordering::Relaxed);
    }
}

/// The time, if the counter has just been read.
#[inline]
fn now(clock: Clock, ticks: Ticks) -> u64 {
    match clock {
        Clock::Counter => ticks.count(),
        Clock::Monotonic => clock::now_ns(),
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
