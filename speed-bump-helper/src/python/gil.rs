//! Holding the interpreter.
//!
//! If the process ends while a thread waits for the GIL, the thread is ended with `pthread_exit` up to 3.13;
//! from 3.14 on it hangs until the process is gone. Neither keeps the process from ending, since the thread
//! is detached and Python does not know it. So the helper holds nothing while it waits.

use core::{ffi::c_int, marker::PhantomData};

use super::{
    api::Api,
    turn::{self, Turn, Waited},
};
use crate::{
    stage::Stage,
    sys::{self, CpuClock},
};

/// How long a thread that has given the GIL away waits at a time, in ns, before it goes on for a while.
const MAX_IN_ONE_PIECE_NS: u64 = 100_000_000;

/// For how long the GIL is given away at least, in ns. A thread that waits for it needs some time to wake up.
/// If we took it again at once, that thread would wait anew, and would never ask for it: it does so only when
/// nobody has woken it for 5 ms (`take_gil` in ceval_gil.h, CPython 3.8 to 3.15).
const GIVEN_AWAY_NS: u32 = 100_000;

/// The GIL, taken by the helper's thread; in free-threaded builds, an attached thread state. Dropping it
/// gives it back.
pub(crate) struct Gil {
    api: &'static Api,
    state: c_int,
    /// Whether the main thread offered the GIL, and waits until we no longer need it.
    is_offered: bool,
    /// When we took the GIL in turn (`CLOCK_MONOTONIC`, in ns); `None` without a clock.
    since_ns: Option<u64>,
}

/// The right to call Python's API: a function further up this stack holds the GIL.
#[derive(Clone, Copy)]
pub(crate) struct Python<'gil> {
    pub(crate) api: &'static Api,
    held: PhantomData<&'gil Gil>,
}

impl Gil {
    /// Waits for the GIL. `None`: the interpreter does not exist yet, or is gone.
    pub(crate) fn take(api: &'static Api) -> Option<Self> {
        // SAFETY: neither function needs anything.
        unsafe {
            let is_there = (api.is_initialized)() != 0 || Stage::now() == Stage::Early;
            if !is_there || (api.is_finalizing)() != 0 {
                return None;
            }
            Some(Self { api, state: (api.gil_ensure)(), is_offered: false, since_ns: None })
        }
    }

    /// Takes the GIL for the helper's thread: asks for it only when that does no harm, and calls `go_on` in
    /// between. `None`: as for [`Gil::take`], or because `go_on` returned false.
    pub(crate) fn take_in_turn(api: &'static Api, go_on: impl FnMut(Waited) -> bool) -> Option<Self> {
        // Before there is an interpreter, no thread has the GIL.
        // SAFETY: the function needs nothing.
        let is_there = unsafe { (api.is_initialized)() } != 0;
        if is_there && turn::wait(api, go_on) == Turn::Unwanted {
            return None;
        }
        let Some(mut gil) = Self::take(api) else {
            turn::over();
            return None;
        };
        gil.taken();
        Some(gil)
    }

    /// The right to call Python that comes with the GIL.
    pub(crate) fn python(&self) -> Python<'_> {
        Python { api: self.api, held: PhantomData }
    }

    /// Lets other threads have the GIL, and waits for it again. If the main thread offered the GIL, it may
    /// not offer it again soon: then we do this only after the main thread has waited for long.
    pub(crate) fn pause(&mut self) {
        if !self.is_offered || self.has_waited_for_long() {
            self.without(|| sys::sleep(GIVEN_AWAY_NS));
        }
    }

    /// Whether we have held the GIL for longer than this, in ns.
    pub(crate) fn is_kept_for(&self, ns: u64) -> bool {
        let now = sys::clock_ns(CpuClock::Monotonic).zip(self.since_ns);
        now.is_some_and(|(now, since)| now.saturating_sub(since) > ns)
    }

    fn has_waited_for_long(&self) -> bool {
        let waited = sys::clock_ns(CpuClock::Monotonic).zip(self.since_ns);
        waited.is_none_or(|(now, since)| now.saturating_sub(since) > MAX_IN_ONE_PIECE_NS)
    }

    /// The GIL was taken in turn.
    fn taken(&mut self) {
        self.is_offered = turn::taken();
        self.since_ns = sys::clock_ns(CpuClock::Monotonic);
    }

    /// Gives the GIL away, calls `work`, which needs no GIL, and waits for the GIL again. If the main thread
    /// offered the GIL, it goes on meanwhile, and then offers the GIL once more.
    pub(crate) fn without(&mut self, work: impl FnOnce()) {
        // SAFETY: it is held.
        let thread = unsafe { (self.api.save_thread)() };
        if self.is_offered {
            turn::over();
        }
        work();
        if self.is_offered {
            turn::wait(self.api, |_| true);
        }
        // SAFETY: the state of this thread, which was given away above.
        unsafe { (self.api.restore_thread)(thread) };
        self.taken();
    }

    /// Whether the main thread offered the GIL, and waits until we no longer need it.
    pub(crate) fn is_offered(&self) -> bool {
        self.is_offered
    }
}

impl Drop for Gil {
    fn drop(&mut self) {
        // SAFETY: it is held since `take`.
        unsafe { (self.api.gil_release)(self.state) };
        if self.is_offered {
            turn::over();
        }
    }
}

impl Python<'_> {
    /// For a function that Python called.
    ///
    /// # Safety
    /// The calling thread holds the GIL, and does so until the function returns.
    pub(crate) unsafe fn assume(api: &'static Api) -> Self {
        Self { api, held: PhantomData }
    }
}
