//! The one place where an interpreter keeps its hook, and who has it: other tools want it as well.
//!
//! A tool that sets its hook finds ours there, calls it, and puts it back when it goes. So all goes well with
//! tools that come and go, as long as they find ours: who attaches while another's hook is there waits for it
//! to go. If it does not go, ours comes before it (`chain`). After that the helper's thread looks now and
//! then who has the place: if nobody has, ours is set again. How much of the time another hook was there that
//! does not call ours is told, as calls were missed then.

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

/// How often is looked during a session, in ms, where others were seen; the odd numbers in between keep no
/// step with whoever comes and goes.
const BUSY_MS: [u32; 4] = [1, 3, 2, 1];
/// For so long after the place changed hands, in ms.
const BUSY_FOR_MS: u32 = 1000;
/// A hook that has been there for so long is here to stay, in ms.
const STAYS_MS: u32 = 1000;
/// Of a hook that has been there for less than this, in ms, it is not told that it does not call ours:
/// nothing may have been called.
const OPEN_MS: u64 = 100;
/// What [`ControlBlock::hook_missed`](speed_bump_abi::control_block::ControlBlock::hook_missed) is a share
/// of.
const WHOLE: u64 = 1000;

/// The place in the main interpreter; null as long as it is not known.
static PLACE: AtomicPtr<AtomicPtr<c_void>> = AtomicPtr::new(ptr::null_mut());
/// Another tool's hook that was there when ours was called, so by it.
static CALLS_US: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether other tools' hooks have ever been seen in the process.
static OTHERS: AtomicBool = AtomicBool::new(false);

/// What the helper's thread saw in this session. Nobody else writes it.
struct Seen {
    /// What was there at the last look, and for how long it has been, in ms.
    last: AtomicPtr<c_void>,
    same_ms: AtomicU32,
    /// For how long was looked, and how much of it ours was not called for sure, in ms.
    looked_ms: AtomicU64,
    missed_ms: AtomicU64,
    /// Of a hook that is there, and of which it is not known yet whether it calls ours.
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

/// Whose hook is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Ours,
    Nobody,
    Other,
}

fn holder(api: &Api, evaluator: Address) -> Holder {
    if is_ours(api, evaluator) {
        Holder::Ours
    } else if evaluator.is_null() || evaluator == evaluator::default() {
        Holder::Nobody
    } else {
        Holder::Other
    }
}

fn set_alone(python: Python<'_>) {
    IN_THE_DEPTH.store(false, Ordering::SeqCst);
    chain::forget();
    evaluator::set(python, ours::<false>(python.api));
}

/// Ours comes first, and has the other one evaluate. Should that call ours, the frame was counted.
fn set_before(python: Python<'_>, other: Address) {
    CALLS_US.store(ptr::null_mut(), Ordering::Relaxed);
    chain::to(other);
    evaluator::set(python, ours::<true>(python.api));
}

/// Takes our hook out; what the user should hear of, as bits of [`notice`].
pub(super) fn give_back(python: Python<'_>) -> u32 {
    let current = evaluator::current(python);
    notice_on_top(current);
    match holder(python.api, current) {
        Holder::Ours => {
            let before = if is_over(python.api, current) { chain::before() } else { evaluator::default() };
            evaluator::set(python, before);
            chain::forget();
        }
        Holder::Nobody => chain::forget(),
        // Should it call ours, or put ours back, ours still has evaluate whom it came after.
        Holder::Other if CALLS_US.load(Ordering::Relaxed) == current => return notice::HOOK_COVERED,
        Holder::Other => {}
    }
    0
}

/// Another tool's hook that ours was set before is on top of ours now: so it has ours to put back when it
/// goes, and is not to be called or put back then. As long as it stays, it is called without us.
fn notice_on_top(current: Address) {
    if chain::is(current) {
        chain::forget();
    }
}

/// Whether the main interpreter's memory is there, also for who does not hold the GIL: it is freed at the end
/// of what begins by saying this, which takes milliseconds.
fn is_alive(api: &Api) -> bool {
    // SAFETY: neither function needs anything.
    unsafe { (api.is_initialized)() != 0 && (api.is_finalizing)() == 0 }
}

/// The place in the main interpreter.
fn place<'i>(api: &Api) -> Option<&'i AtomicPtr<c_void>> {
    // SAFETY: needs nothing.
    let main = NonNull::new(unsafe { (api.interpreter_main)() })?;
    // SAFETY: whoever uses it holds the GIL, or asks `is_alive` just before.
    unsafe { evaluator::place(main) }
}

/// Our hook at this address is called: if it is not the one that is there, the one that is there calls it.
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
    // SAFETY: both return a pointer that is compared and nothing else; a thread runs, as it calls the hook.
    let is_main = unsafe { (api.interpreter)() == (api.interpreter_main)() };
    let Some(current) = place(api).map(|place| place.load(Ordering::Relaxed)) else { return };
    if !is_main {
        return;
    }
    if holder(api, current) == Holder::Other {
        CALLS_US.store(current, Ordering::Relaxed);
        notice_on_top(current);
    } else if is_over(api, current) && is_ours(api, hook) && !is_over(api, hook) && chain::is_there() {
        // Ours was set before one that calls ours after all: nothing had been called for a while. It comes
        // first again, or each call would come by twice.
        let chained = chain::before();
        CALLS_US.store(chained, Ordering::Relaxed);
        chain::forget();
        // SAFETY: Python calls the hook, with the GIL.
        evaluator::set(unsafe { Python::assume(api) }, chained);
    }
}

/// The hook that ours had evaluate has come back: if nobody's is there now, it was the last call of its, and
/// ours comes again.
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
    if holder(api, place.load(Ordering::Relaxed)) == Holder::Nobody
        && WANTED.load(Ordering::Acquire)
        && !IN_THE_DEPTH.load(Ordering::SeqCst)
        && evaluator::replace_default(place, ours::<false>(api))
    {
        chain::forget();
    }
}

/// Ours that is there: which of ours is to be there in this session. None but the one that has another's hook
/// evaluate needs that one.
fn keep(api: &Api, current: Address) -> Address {
    if is_over(api, current) && chain::is_there() {
        return ours::<true>(api);
    }
    chain::forget();
    ours::<false>(api)
}

/// Ours that is there becomes the one that this session wants now.
pub(super) fn renew(python: Python<'_>) {
    let current = evaluator::current(python);
    if holder(python.api, current) == Holder::Ours {
        evaluator::set(python, keep(python.api, current));
    }
}

/// When to look next, in ms: at the latest after so long.
pub(crate) fn next_look_ms(latest_ms: u32) -> u32 {
    if !SEEN.busy.load(Ordering::Relaxed) {
        return latest_ms;
    }
    let turn = SEEN.turn.fetch_add(1, Ordering::Relaxed);
    BUSY_MS[turn as usize % BUSY_MS.len()].min(latest_ms)
}

/// Looks who has the place, so long after the last time, without the GIL. Whether somebody with the GIL
/// should see to it ([`see_to`]).
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
            // One of a session that timed calls, or did not, as somebody has put it back. Or one that came
            // before another's, which has gone.
            let hook = keep(api, current);
            let _ = place.compare_exchange(current, hook, Ordering::SeqCst, Ordering::SeqCst);
        }
        Holder::Nobody if IN_THE_DEPTH.load(Ordering::SeqCst) => {}
        Holder::Nobody => {
            SEEN.miss(after_ms);
            // Whoever comes from here on finds ours, or does not.
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

/// Has our hook come before one that stays, and never calls ours. Where nobody knows the place, it is only
/// now that ours is found to be gone.
pub(crate) fn see_to(python: Python<'_>) {
    let current = evaluator::current(python);
    if !WANTED.load(Ordering::Acquire) {
        return;
    }
    match holder(python.api, current) {
        Holder::Nobody if place(python.api).is_none() && !IN_THE_DEPTH.load(Ordering::SeqCst) => {
            SEEN.miss(STAYS_MS);
            set_alone(python);
        }
        Holder::Other if CALLS_US.load(Ordering::Relaxed) != current => {
            SEEN.close();
            set_before(python, current);
        }
        Holder::Nobody | Holder::Other | Holder::Ours => {}
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

    /// What is there now; for how long it has been, in ms.
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

    /// Whether to look with the GIL, as nobody knows the place: each time that so long has passed.
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

    /// It will not be known any more.
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
