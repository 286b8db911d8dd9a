//! How ours gets the place when a session begins, where other tools come and go.
//!
//! Whoever reads the place to set his hook may have read it just before ours was set: then he puts back what
//! was there before, and ours is lost. So after it was set it is looked at until another's hook has come and
//! has called ours, or has put it back.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use speed_bump_abi::control_block::HelperCommand;

use super::{
    CALLS_US, Holder, OTHERS, PLACE, SEEN, holder, is_alive, keep, notice_on_top, place, set_alone,
    set_before,
};
use crate::{
    block::Block,
    clock,
    frame_hook::{
        IN_THE_DEPTH, chain,
        evaluator::{self, Address},
        is_over, ours,
    },
    python::{api::Api, gil::Gil},
    sys,
};

/// How long another tool's hook is waited for at most when a session begins, in ns. What comes and goes is
/// there for so long seldom; who attaches to a process where one stays waits for as long.
const PATIENCE_NS: u64 = 300_000_000;
/// The same where the place is not known as long as another's is there: then there is no session otherwise.
const FIND_NS: u64 = 1_000_000_000;
/// The same where none was ever seen.
const GLANCE_NS: u64 = 3_000_000;
/// How often is looked meanwhile: the place may be free for microseconds.
const LOOK_EVERY_NS: u32 = 20_000;
/// So many looks at most, where the process has no clock.
const LOOKS: u32 = 5000;
/// How often it is begun anew at most, after so long.
const ROUNDS: u32 = 4;
/// For so many looks ours has to come before another's, which stays then.
const LOOKS_BEFORE: u32 = 200;

/// Finds the place. On 3.8 it is found by the default evaluator, which may have to be waited for.
pub(in crate::frame_hook) fn find(gil: &mut Gil, block: Block) {
    if gil.python().api.version.minor() == (3, 8) && evaluator::prepare(gil.python()).is_err() {
        OTHERS.store(true, Ordering::Relaxed);
        wait(gil, block, FIND_NS, evaluator::search_again);
    }
}

/// Sets our hook, for a session that begins. Where there is another tool's, it is waited for until that has
/// found ours, and calls it or has put it back.
pub(in crate::frame_hook) fn take(gil: &mut Gil, block: Block) {
    let api = gil.python().api;
    CALLS_US.store(ptr::null_mut(), Ordering::Relaxed);
    SEEN.forget();
    let place = place(api);
    PLACE.store(place.map_or(ptr::null_mut(), |place| ptr::from_ref(place).cast_mut()), Ordering::Release);
    // Nothing is left of a session before this one but what somebody may still call or put back.
    IN_THE_DEPTH.store(false, Ordering::SeqCst);
    let current = evaluator::current(gil.python());
    notice_on_top(current);
    match holder(api, current) {
        Holder::Nobody => chain::forget(),
        Holder::Ours => evaluator::set(gil.python(), keep(api, current)),
        Holder::Other => {}
    }
    let mut around = Around::default();
    for _ in 0..ROUNDS {
        let current = evaluator::current(gil.python());
        around.see(holder(api, current));
        // Another may be about to come, and have read the place already.
        let is_likely = around.are_others || OTHERS.load(Ordering::Relaxed);
        let patience_ns = if is_likely { PATIENCE_NS } else { GLANCE_NS };
        // A thread that has given the GIL away for this waits, and sets nothing.
        if let Some(place) = place
            && (is_likely || !gil.is_offered())
        {
            wait(gil, block, patience_ns, |api| around.is_settled(api, place));
        }
        let python = gil.python();
        let current = evaluator::current(python);
        match holder(api, current) {
            Holder::Nobody => set_alone(python),
            // Of a session before this one, in a forked child; or just now.
            Holder::Ours => evaluator::set(python, keep(api, current)),
            Holder::Other if around.calls_us(current) => {}
            Holder::Other => set_before(python, current),
        }
        if !around.are_others || around.is_settled || !is_wanted(block) {
            return;
        }
    }
}

/// Whether a session is still to begin.
fn is_wanted(block: Block) -> bool {
    block.command() != HelperCommand::Leave
}

/// What is known of other tools while a session begins.
#[derive(Default)]
struct Around {
    /// Some were seen.
    are_others: bool,
    /// Another's was seen after ours was set.
    came: bool,
    /// For so many looks in a row ours comes before another's.
    before: u32,
    is_settled: bool,
}

impl Around {
    fn see(&mut self, holder: Holder) {
        if holder == Holder::Other {
            OTHERS.store(true, Ordering::Relaxed);
            (self.are_others, self.came) = (true, true);
        }
    }

    /// Looks who has the place. Whether all others have ours to call, or to put back.
    fn is_settled(&mut self, api: &Api, place: &AtomicPtr<c_void>) -> bool {
        let current = place.load(Ordering::Acquire);
        let is_before = is_over(api, current);
        self.before = if is_before { self.before.saturating_add(1) } else { 0 };
        match holder(api, current) {
            Holder::Nobody => {
                // Who has read the place before and writes it now has not found ours: it is looked at
                // further.
                evaluator::replace_default(place, ours::<false>(api));
                self.came = false;
            }
            Holder::Ours if is_before => {
                self.came = false;
                self.is_settled = self.before > LOOKS_BEFORE;
            }
            Holder::Ours => self.is_settled = self.came,
            Holder::Other => {
                self.see(Holder::Other);
                self.is_settled = self.calls_us(current);
            }
        }
        self.is_settled
    }

    fn calls_us(&self, other: Address) -> bool {
        CALLS_US.load(Ordering::Relaxed) == other
    }
}

/// Looks again and again without the GIL, until it is done or that has taken too long.
fn wait(gil: &mut Gil, block: Block, patience_ns: u64, mut is_done: impl FnMut(&Api) -> bool) {
    let api = gil.python().api;
    let has_clock = clock::prepare();
    gil.without(|| {
        let begun = clock::now_ns();
        for _ in 0..LOOKS {
            let is_late = has_clock && clock::now_ns().wrapping_sub(begun) > patience_ns;
            if is_late || !is_wanted(block) || !is_alive(api) || is_done(api) {
                return;
            }
            sys::sleep(LOOK_EVERY_NS);
        }
    });
}
