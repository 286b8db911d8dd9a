//! Doses expire after a second. A thread renews them as long as the session's event loop runs.
//!
//! So a tool leaves no delays behind if it hangs, or if someone kills or stops it (`SIGSTOP`). The thread is
//! separate from the event loop, because attaching and detaching can hold up the event loop until delays in
//! progress are over.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use speed_bump_abi::Control;

use crate::{engine::bpf::switch::PolicySwitch, sys::clock::now, sys::priority, units::Nanos};

/// How often the thread renews doses.
const RENEW_EVERY: Duration = Duration::from_millis(100);
/// If nothing is delayed and the event loop has not come round for this long, we assume that the event loop
/// hangs. The event loop may have much to read: a library with a million symbols.
const HANGS_AFTER: Nanos = Nanos(2_000_000_000);
/// How many delays the event loop may have to wait for, one after the other: until it gets a processor, and
/// while the kernel removes probes.
const SPINS: u64 = 4;
/// After this time we assume that the event loop hangs, whatever the delays are.
const HANGS_AT_LAST: Nanos = Nanos(15_000_000_000);

/// The thread. The thread ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Renewal {
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    watch: Arc<Watch>,
}

/// Watches whether the event loop comes round.
#[derive(Debug)]
struct Watch {
    switch: Arc<PolicySwitch>,
    came_round_ns: AtomicU64,
    /// The total time for which nobody renewed doses, in ns.
    lapsed_ns: AtomicU64,
}

impl Renewal {
    /// Starts the thread.
    pub(super) fn start(switch: Arc<PolicySwitch>) -> io::Result<Self> {
        let (end, ends) = mpsc::channel();
        let came_round_ns = AtomicU64::new(now().0);
        let watch = Arc::new(Watch { switch, came_round_ns, lapsed_ns: AtomicU64::new(0) });
        // Renews here too, because the window may open before the thread runs.
        watch.renew();
        let watches = Arc::clone(&watch);
        let thread =
            thread::Builder::new().name("renewal".to_owned()).spawn(move || watches.renew_until(&ends))?;
        Ok(Self { end: Some(end), thread: Some(thread), watch })
    }

    /// The event loop calls this in each of its turns.
    pub(super) fn came_round(&self) {
        self.watch.came_round_ns.store(now().0, Ordering::Relaxed);
    }

    /// Renews doses now, without waiting for the thread.
    pub(super) fn renew(&self) {
        self.watch.renew();
    }

    /// How long nobody has renewed doses since the last call, because the event loop did not come round.
    pub(super) fn take_lapsed(&self) -> Nanos {
        Nanos(self.watch.lapsed_ns.swap(0, Ordering::Relaxed))
    }
}

impl Watch {
    fn renew_until(&self, ends: &mpsc::Receiver<()>) {
        if let Err(error) = priority::urgent() {
            tracing::debug!("the thread that renews doses has no real-time priority: {error}");
        }
        let mut last = now();
        loop {
            let is_renewed = self.renew();
            let now = now();
            if !is_renewed {
                self.lapsed_ns.fetch_add(now.0.saturating_sub(last.0), Ordering::Relaxed);
            }
            last = now;
            if ends.recv_timeout(RENEW_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Renews doses, unless the event loop hangs. Returns whether it renewed them.
    fn renew(&self) -> bool {
        let now = now();
        let came_round = Nanos(self.came_round_ns.load(Ordering::Relaxed));
        let is_renewed = !hangs(now, came_round, self.switch.longest());
        if is_renewed {
            self.switch.renew(Nanos(now.0.saturating_add(Control::EXPIRY_NS)));
        }
        is_renewed
    }
}

/// Whether the event loop hangs. The event loop came round last at `came_round`, and the longest delay is
/// `longest`.
fn hangs(now: Nanos, came_round: Nanos, longest: Nanos) -> bool {
    let patience = HANGS_AFTER.0.saturating_add(longest.0.saturating_mul(SPINS)).min(HANGS_AT_LAST.0);
    now.0.saturating_sub(came_round.0) >= patience
}

impl Drop for Renewal {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_loop_has_more_time_where_delays_are_long() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let hangs = |since: u64, longest: u64| hangs(ms(100_000 + since), ms(100_000), ms(longest));
        assert!(!hangs(1_999, 0) && hangs(2_000, 0));
        assert!(!hangs(2_399, 100) && hangs(2_400, 100));
        assert!(!hangs(14_999, 10_000) && hangs(15_000, 10_000));
    }
}
