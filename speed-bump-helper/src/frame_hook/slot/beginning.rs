//! How our hook gets set when a session starts, where other tools come and go.
//!
//! A tool may have read the place just before we set our hook. Then it puts back what was there before, and
//! ours is lost. So we watch the place after setting ours, until another tool's hook has come and has called
//! ours, or has put it back.

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

/// How long we wait at most for another tool's hook to go when a session starts, in ns. Hooks that come and
/// go are seldom there for this long; an attach to a process where one stays takes this long.
const PATIENCE_NS: u64 = 300_000_000;
/// How long we wait at most if the place is unknown while another hook is set, in ns: without the place there
/// is no session.
const FIND_NS: u64 = 1_000_000_000;
/// How long we wait at most if no other hook was ever seen, in ns.
const GLANCE_NS: u64 = 3_000_000;
/// Time between two checks: the place may be free for microseconds.
const LOOK_EVERY_NS: u32 = 20_000;
/// The number of checks at most, if the process has no clock.
const LOOKS: u32 = 5000;
/// How often we start again at most, and after how long.
const ROUNDS: u32 = 4;
/// Another hook counts as staying if ours is found set on top of it in this many checks in a row.
const LOOKS_BEFORE: u32 = 200;

/// Finds the place. On 3.8 we find it by the default evaluator, which may have to be waited for.
pub(in crate::frame_hook) fn find(gil: &mut Gil, block: Block) {
    if gil.python().api.version.minor() == (3, 8) && evaluator::prepare(gil.python()).is_err() {
        OTHERS.store(true, Ordering::Relaxed);
        wait(gil, block, FIND_NS, evaluator::search_again);
    }
}

/// Sets our hook for a session that starts. If another tool's hook is set, waits until that tool has found
/// ours, and calls it or has put it back.
pub(in crate::frame_hook) fn take(gil: &mut Gil, block: Block) {
    let api = gil.python().api;
    CALLS_US.store(ptr::null_mut(), Ordering::Relaxed);
    SEEN.forget();
    let place = place(api);
    PLACE.store(place.map_or(ptr::null_mut(), |place| ptr::from_ref(place).cast_mut()), Ordering::Release);
    // Of an earlier session nothing remains except hooks that another tool may still call or put back.
    IN_THE_DEPTH.store(false, Ordering::SeqCst);
    let current = evaluator::current(gil.python());
    notice_on_top(current);
    match holder(api, current) {
        Holder::Empty => chain::forget(),
        Holder::Ours => evaluator::set(gil.python(), keep(api, current)),
        Holder::Other => {}
    }
    let mut around = Around::default();
    for _ in 0..ROUNDS {
        let current = evaluator::current(gil.python());
        around.see(holder(api, current));
        // A tool that is about to set its hook may have read the place already.
        let is_likely = around.are_others || OTHERS.load(Ordering::Relaxed);
        let patience_ns = if is_likely { PATIENCE_NS } else { GLANCE_NS };
        // If the main thread has offered the GIL, it waits for us, and sets no hook.
        if let Some(place) = place
            && (is_likely || !gil.is_offered())
        {
            wait(gil, block, patience_ns, |api| around.is_settled(api, place));
        }
        let python = gil.python();
        let current = evaluator::current(python);
        match holder(api, current) {
            Holder::Empty => set_alone(python),
            // Ours, from an earlier session, in a forked child; or set just now.
            Holder::Ours => evaluator::set(python, keep(api, current)),
            Holder::Other if around.calls_us(current) => {}
            Holder::Other => set_before(python, current),
        }
        if !around.are_others || around.is_settled || !is_wanted(block) {
            return;
        }
    }
}

/// Whether a session is still about to start.
fn is_wanted(block: Block) -> bool {
    block.command() != HelperCommand::Leave
}

/// What we learn of other tools while a session starts.
#[derive(Default)]
struct Around {
    /// Other tools' hooks were seen.
    are_others: bool,
    /// Another tool's hook was seen after ours was set.
    came: bool,
    /// For this many checks in a row ours has been set on top of another.
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

    /// Checks which hook is set. Returns whether all other tools have ours to call, or to put back.
    fn is_settled(&mut self, api: &Api, place: &AtomicPtr<c_void>) -> bool {
        let current = place.load(Ordering::Acquire);
        let is_before = is_over(api, current);
        self.before = if is_before { self.before.saturating_add(1) } else { 0 };
        match holder(api, current) {
            Holder::Empty => {
                // A tool that read the place before and writes it now has not found ours: keep watching.
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

/// Checks again and again without the GIL, until it is done or has taken too long.
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
