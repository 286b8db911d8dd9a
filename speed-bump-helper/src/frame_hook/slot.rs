//! The one place where an interpreter stores its hook, shared with other tools.
//!
//! A tool that sets its hook finds ours there, calls it, and puts it back when it goes. So tools that come
//! and go do no harm if they find ours. If another tool's hook is there at attach, we wait until it goes. If
//! it does not go, ours is set on top of it (`chain`). After that the helper's thread checks the place now
//! and then: if it is empty, it sets ours again. It reports how much of the time another hook was there that
//! does not call ours, since calls were missed then.

mod beginning;

use core::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

use speed_bump_abi::control_block::notice;

pub(super) use self::beginning::{find, take};
use super::{
    IN_THE_DEPTH, WANTED, chain,
    evaluator::{self, Address},
    is_ours, is_over, ours,
};
use crate::{
    block::Block,
    python::{api::Api, gil::Python},
};

/// How often we check during a session, in ms, where other tools were seen. Odd numbers, so that the checks
/// do not keep step with a tool that comes and goes.
const BUSY_MS: [u32; 4] = [1, 3, 2, 1];
/// How often we check for this long after the hook changed, in ms.
const BUSY_FOR_MS: u32 = 1000;
/// A hook that has been there for this long counts as staying, in ms.
const STAYS_MS: u32 = 1000;
/// For a hook that was there for less than this, in ms, we do not report that it does not call ours: perhaps
/// there was no call.
const OPEN_MS: u64 = 100;
/// The whole that [`ControlBlock::hook_missed`](speed_bump_abi::control_block::ControlBlock::hook_missed) is
/// a fraction of.
const WHOLE: u64 = 1000;

/// The place in the main interpreter; null while it is unknown.
static PLACE: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new(ptr::null_mut());
/// Another tool's hook that was there when ours was called, so it calls ours.
static CALLS_US: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether this process has ever had another tool's hook.
static OTHERS: AtomicBool = AtomicBool::new(false);

/// What the helper's thread found in this session. No other thread writes it.
struct Seen {
    /// The hook at the last check, and for how long it has been there, in ms.
    last: AtomicPtr<c_void>,
    same_ms: AtomicU32,
    /// For how long we have checked, and for how much of it ours was certainly not called, in ms.
    looked_ms: AtomicU64,
    missed_ms: AtomicU64,
    /// How long the present hook has been there, if we do not know yet whether it calls ours.
    open_ms: AtomicU64,
    turn: AtomicU32,
    busy: AtomicBool,
}

static SEEN: Seen = Seen {
    last: AtomicPtr::new(ptr::null_mut()),
    same_ms: AtomicU32::new(0),
    looked_ms: AtomicU64::new(0),
    missed_ms: AtomicU64::new(0),
    open_ms: AtomicU64::new(0),
    turn: AtomicU32::new(0),
    busy: AtomicBool::new(false),
};

/// Whose hook is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Ours,
    Empty,
    Other,
}

fn holder(api: &Api, evaluator: Address) -> Holder {
    if is_ours(api, evaluator) {
        Holder::Ours
    } else if evaluator.is_null() || evaluator == evaluator::default() {
        Holder::Empty
    } else {
        Holder::Other
    }
}

fn set_alone(python: Python<'_>) {
    IN_THE_DEPTH.store(false, Ordering::SeqCst);
    chain::forget();
    evaluator::set(python, ours::<false>(python.api));
}

/// Sets our hook on top of another. Python calls ours first, and ours calls the other. If the other calls
/// ours again, the frame is counted already.
fn set_before(python: Python<'_>, other: Address) {
    CALLS_US.store(ptr::null_mut(), Ordering::Relaxed);
    chain::to(other);
    evaluator::set(python, ours::<true>(python.api));
}

/// Removes our hook. Returns bits of [`notice`] for the user.
pub(super) fn give_back(python: Python<'_>) -> u32 {
    let current = evaluator::current(python);
    notice_on_top(current);
    match holder(python.api, current) {
        Holder::Ours => {
            let before = if is_over(python.api, current) { chain::before() } else { evaluator::default() };
            evaluator::set(python, before);
            chain::forget();
        }
        Holder::Empty => chain::forget(),
        // The other tool's hook calls ours, or the tool will put ours back. So our hook must still call the
        // hook that was there before.
        Holder::Other if CALLS_US.load(Ordering::Relaxed) == current => return notice::HOOK_COVERED,
        Holder::Other => {}
    }
    0
}

/// Notices that a hook that ours was set on top of is now on top of ours. Then its tool will put ours back
/// when it goes, and we must no longer call the hook or put it back. While the hook stays, Python calls it
/// without us.
fn notice_on_top(current: Address) {
    if chain::is(current) {
        chain::forget();
    }
}

/// Whether the main interpreter's memory still exists, for threads without the GIL too. Python clears this
/// flag at the start of its finalization, which takes milliseconds, and frees the memory at the end.
fn is_alive(api: &Api) -> bool {
    // SAFETY: neither function needs anything.
    unsafe { (api.is_initialized)() != 0 && (api.is_finalizing)() == 0 }
}

/// The place in the main interpreter.
fn place<'i>(api: &Api) -> Option<&'i AtomicPtr<c_void>> {
    // SAFETY: needs nothing.
    let main = NonNull::new(unsafe { (api.interpreter_main)() })?;
    // SAFETY: users of the place hold the GIL, or call `is_alive` just before.
    unsafe { evaluator::place(main) }
}

/// Notes that Python or another hook calls our hook at this address. If another hook is set, that one calls
/// ours.
#[inline]
pub(super) fn is_called(hook: Address) {
    let place = PLACE.load(Ordering::Relaxed);
    // SAFETY: null, or the place in the main interpreter; Python calls the hook, so it is there.
    if !place.is_null() && unsafe { &*place }.load(Ordering::Relaxed) != hook {
        note_caller(hook);
    }
}

#[cold]
#[inline(never)]
fn note_caller(hook: Address) {
    let Some(api) = Api::found() else { return };
    // SAFETY: both return a pointer that is only compared; a thread runs, since it calls the hook.
    let is_main = unsafe { (api.interpreter)() == (api.interpreter_main)() };
    let Some(current) = place(api).map(|place| place.load(Ordering::Relaxed)) else { return };
    if !is_main {
        return;
    }
    if holder(api, current) == Holder::Other {
        CALLS_US.store(current, Ordering::Relaxed);
        notice_on_top(current);
    } else if is_over(api, current) && is_ours(api, hook) && !is_over(api, hook) && chain::is_there() {
        // Ours was set on top of a hook that calls ours after all, when nothing had been called for a while.
        // We make that hook the first again, or each call would reach ours twice.
        let chained = chain::before();
        CALLS_US.store(chained, Ordering::Relaxed);
        chain::forget();
        // SAFETY: Python calls the hook, with the GIL.
        evaluator::set(unsafe { Python::assume(api) }, chained);
    }
}

/// The hook that ours called has returned. If no hook is set now, that was its last call, and we set ours
/// again.
#[inline]
pub(super) fn look_after() {
    let place = PLACE.load(Ordering::Relaxed);
    // SAFETY: as in `is_called`.
    let current = if place.is_null() { return } else { unsafe { &*place }.load(Ordering::Relaxed) };
    if current.is_null() || current == evaluator::default() {
        come_again();
    }
}

#[cold]
#[inline(never)]
fn come_again() {
    let Some(api) = Api::found() else { return };
    let Some(place) = place(api) else { return };
    if holder(api, place.load(Ordering::Relaxed)) == Holder::Empty
        && WANTED.load(Ordering::Acquire)
        && !IN_THE_DEPTH.load(Ordering::SeqCst)
        && evaluator::replace_default(place, ours::<false>(api))
    {
        chain::forget();
    }
}

/// Which of our hooks is to be set in this session, when one of ours is set. If ours is set on top of another
/// tool's hook, it must be the one that calls that hook.
fn keep(api: &Api, current: Address) -> Address {
    if is_over(api, current) && chain::is_there() {
        return ours::<true>(api);
    }
    chain::forget();
    ours::<false>(api)
}

/// If one of our hooks is set, replaces it by the one that this session wants now.
pub(super) fn renew(python: Python<'_>) {
    let current = evaluator::current(python);
    if holder(python.api, current) == Holder::Ours {
        evaluator::set(python, keep(python.api, current));
    }
}

/// When to check next, in ms; at most `latest_ms`.
pub(crate) fn next_look_ms(latest_ms: u32) -> u32 {
    if !SEEN.busy.load(Ordering::Relaxed) {
        return latest_ms;
    }
    let turn = SEEN.turn.fetch_add(1, Ordering::Relaxed);
    BUSY_MS[turn as usize % BUSY_MS.len()].min(latest_ms)
}

/// Checks without the GIL which hook is set, `after_ms` after the last time. Returns whether a thread with
/// the GIL should call [`see_to`].
pub(crate) fn look(api: &Api, block: Block, after_ms: u32) -> bool {
    if !WANTED.load(Ordering::Acquire) || !is_alive(api) {
        return false;
    }
    let Some(place) = place(api) else { return SEEN.is_time(after_ms) };
    let current = place.load(Ordering::Acquire);
    let same_ms = SEEN.note(current, after_ms);
    let mut stays = false;
    match holder(api, current) {
        Holder::Ours => {
            // Another tool may have put back our hook of an earlier session, which timed calls while this one
            // does not, or the reverse. Or ours calls another tool's hook that has gone.
            let hook = keep(api, current);
            let _ = place.compare_exchange(current, hook, Ordering::SeqCst, Ordering::SeqCst);
        }
        Holder::Empty if IN_THE_DEPTH.load(Ordering::SeqCst) => {}
        Holder::Empty => {
            SEEN.miss(after_ms);
            // What we knew of other hooks no longer holds: tools that come from here on find ours, or do not.
            CALLS_US.store(ptr::null_mut(), Ordering::Relaxed);
            chain::forget();
            evaluator::replace_default(place, ours::<false>(api));
        }
        Holder::Other if CALLS_US.load(Ordering::Relaxed) == current => {
            notice_on_top(current);
            OTHERS.store(true, Ordering::Relaxed);
            SEEN.open_ms.store(0, Ordering::Relaxed);
            if same_ms >= STAYS_MS {
                block.notice(notice::HOOK_COVERED);
            }
        }
        Holder::Other => {
            notice_on_top(current);
            OTHERS.store(true, Ordering::Relaxed);
            SEEN.open_ms.fetch_add(u64::from(after_ms), Ordering::Relaxed);
            stays = same_ms >= STAYS_MS;
        }
    }
    SEEN.tell(block);
    stays
}

/// Sets our hook on top of one that stays and never calls ours. If the place is unknown, only this function
/// can notice that ours is gone.
pub(crate) fn see_to(python: Python<'_>) {
    let current = evaluator::current(python);
    if !WANTED.load(Ordering::Acquire) {
        return;
    }
    match holder(python.api, current) {
        Holder::Empty if place(python.api).is_none() && !IN_THE_DEPTH.load(Ordering::SeqCst) => {
            SEEN.miss(STAYS_MS);
            set_alone(python);
        }
        Holder::Other if CALLS_US.load(Ordering::Relaxed) != current => {
            SEEN.close();
            set_before(python, current);
        }
        Holder::Empty | Holder::Other | Holder::Ours => {}
    }
}

impl Seen {
    fn forget(&self) {
        self.last.store(ptr::null_mut(), Ordering::Relaxed);
        self.same_ms.store(0, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
        for sum in [&self.looked_ms, &self.missed_ms, &self.open_ms] {
            sum.store(0, Ordering::Relaxed);
        }
    }

    /// Notes the hook that is set now. Returns for how long it has been set, in ms.
    fn note(&self, current: Address, after_ms: u32) -> u32 {
        self.looked_ms.fetch_add(u64::from(after_ms), Ordering::Relaxed);
        let last = self.last.swap(current, Ordering::Relaxed);
        if last != current {
            self.same_ms.store(0, Ordering::Relaxed);
            self.busy.store(!last.is_null(), Ordering::Relaxed);
            return 0;
        }
        let same_ms = self.same_ms.fetch_add(after_ms, Ordering::Relaxed).saturating_add(after_ms);
        if same_ms > BUSY_FOR_MS {
            self.same_ms.store(BUSY_FOR_MS, Ordering::Relaxed);
            self.busy.store(false, Ordering::Relaxed);
        }
        same_ms
    }

    /// Whether it is time to check with the GIL: if the place is unknown, we do so once in [`STAYS_MS`].
    fn is_time(&self, after_ms: u32) -> bool {
        let is_time = self.note(ptr::null_mut(), after_ms) >= STAYS_MS;
        if is_time {
            self.same_ms.store(0, Ordering::Relaxed);
        }
        is_time
    }

    fn miss(&self, ms: u32) {
        self.missed_ms.fetch_add(u64::from(ms), Ordering::Relaxed);
        self.close();
    }

    /// From here on, we cannot learn whether the hook called ours: counts its time as missed.
    fn close(&self) {
        self.missed_ms.fetch_add(self.open_ms.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn tell(&self, block: Block) {
        let open_ms = self.open_ms.load(Ordering::Relaxed);
        let open_ms = if open_ms < OPEN_MS { 0 } else { open_ms };
        let missed = self.missed_ms.load(Ordering::Relaxed).saturating_add(open_ms);
        let looked = self.looked_ms.load(Ordering::Relaxed).max(1);
        let share = missed.saturating_mul(WHOLE).div_ceil(looked).min(WHOLE);
        block.head().hook_missed.store(u32::try_from(share).unwrap_or(0), Ordering::Release);
        if missed > 0 {
            block.notice(notice::HOOK_MISSED);
        }
    }
}
