//! Doses hold for a second: a thread renews them as long as the session is at work.
//!
//! So a loader that was killed or stopped (`SIGSTOP`) leaves nothing delayed behind, and neither does one
//! that hangs. It is a thread of its own, as attaching and detaching can hold up the event loop for seconds,
//! while spins in flight end.

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

use crate::{
    engine::bpf::switch::{PolicySwitch, now},
    sys::priority,
    units::Nanos,
};

/// How often doses are renewed.
const RENEW_EVERY: Duration = Duration::from_millis(100);
/// An event loop that has not come round for so long hangs: longer than any spin that it may have to wait
/// for.
const HANGS_AFTER: Nanos = Nanos(15_000_000_000);

/// The thread; dropping this ends it.
#[derive(Debug)]
pub(super) struct Renewal {
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    came_round: Arc<AtomicU64>,
}

impl Renewal {
    /// Starts to renew.
    pub(super) fn start(switch: Arc<PolicySwitch>) -> io::Result<Self> {
        let came_round = Arc::new(AtomicU64::new(now().0));
        let (end, ends) = mpsc::channel();
        let last = Arc::clone(&came_round);
        // The window may open before the thread runs.
        renew_once(&switch, &came_round);
        let renew = move || renew(&switch, &last, &ends);
        let thread = thread::Builder::new().name("renewal".to_owned()).spawn(renew)?;
        Ok(Self { end: Some(end), thread: Some(thread), came_round })
    }

    /// Told by the event loop each time that it comes round.
    pub(super) fn came_round(&self) {
        self.came_round.store(now().0, Ordering::Relaxed);
    }
}

fn renew(switch: &PolicySwitch, came_round: &AtomicU64, ends: &mpsc::Receiver<()>) {
    if let Err(error) = priority::urgent() {
        tracing::debug!("the thread that renews doses has no real-time priority: {error}");
    }
    loop {
        renew_once(switch, came_round);
        if ends.recv_timeout(RENEW_EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn renew_once(switch: &PolicySwitch, came_round: &AtomicU64) {
    let now = now().0;
    if now.saturating_sub(came_round.load(Ordering::Relaxed)) < HANGS_AFTER.0 {
        switch.renew(Nanos(now.saturating_add(Control::EXPIRY_NS)));
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
