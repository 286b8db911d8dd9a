//! Stopping at once, whatever the event loop is doing.
//!
//! Attaching waits for grace periods of the kernel, and those wait for spins in flight: with long delays
//! the event loop may hear of a signal seconds late. A thread of its own hears of it at once and sets the
//! stop flag, which ends every spin; the event loop then does the rest. What waits without the event loop
//! asks here whether it still should.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use aya::maps::{Array, MapData};
use speed_bump_abi::Control;
use tokio::sync::oneshot;

use super::run::Signals;

/// Nothing is delayed any more, and what spins stops.
pub(super) const STOPPED: Control = Control { start_ns: u64::MAX, end_ns: u64::MAX, stop: 1 };

/// The thread; dropping this ends it.
pub(super) struct Stopper {
    done: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    heard: Arc<AtomicU32>,
}

impl Stopper {
    /// Starts to wait for the signals that end a session.
    pub(super) fn start(control: Array<MapData, Control>) -> io::Result<Self> {
        let (done, mut finished) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _entered = runtime.enter();
            Signals::new()?
        };
        let heard = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&heard);
        let wait = move || {
            let mut control = control;
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = signals.next() => {
                            count.fetch_add(1, Ordering::Release);
                            stop(&mut control);
                        }
                        _ = &mut finished => return,
                    }
                }
            });
        };
        let thread = thread::Builder::new().name("stopper".to_owned()).spawn(wait)?;
        Ok(Self { done: Some(done), thread: Some(thread), heard })
    }

    /// How many signals there were that end a session.
    pub(super) fn heard(&self) -> u32 {
        self.heard.load(Ordering::Acquire)
    }
}

fn stop(control: &mut Array<MapData, Control>) {
    if let Err(error) = control.set(0, STOPPED, 0) {
        tracing::debug!("a spin in flight may delay the detaching: {error}");
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        // Either the thread still listens, or it has ended already.
        let _ = self.done.take().map(|done| done.send(()));
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
