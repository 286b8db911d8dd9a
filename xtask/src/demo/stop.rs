//! Turns Ctrl-C and similar signals into a flag that every wait checks, so that everything that was started
//! also stops.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    runtime, select,
    signal::unix::{Signal, SignalKind, signal},
};

/// How often a wait checks the flag.
pub(super) const GLANCE: Duration = Duration::from_millis(20);

/// Whether SIGINT, SIGTERM or SIGHUP arrived.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From here on these signals only raise the flag.
    pub(super) fn on_signals() -> Result<Self> {
        let stop = Self(Arc::default());
        let flag = Arc::clone(&stop.0);
        let (ready, handled) = mpsc::channel();
        thread::spawn(move || {
            // Sending fails only when the other side is gone.
            let _ = ready.send(wait_for_signal(&flag, &ready));
        });
        handled.recv().context("the thread for signals ended")?.context("cannot handle signals")?;
        Ok(stop)
    }

    /// An error once a signal arrived.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("stopped by a signal");
        }
        Ok(())
    }

    /// Sleeps; a signal ends it.
    pub(super) fn sleep(&self, span: Duration) -> Result<()> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.check()?;
            thread::sleep(GLANCE);
        }
        self.check()
    }
}

/// Raises the flag at each signal. Reports through `ready` that the signals are handled, or why not.
fn wait_for_signal(flag: &AtomicBool, ready: &mpsc::Sender<io::Result<()>>) -> io::Result<()> {
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let kind = |kind: fn() -> SignalKind| signal(kind());
        let mut signals: [Signal; 3] =
            [kind(SignalKind::interrupt)?, kind(SignalKind::terminate)?, kind(SignalKind::hangup)?];
        let _ = ready.send(Ok(()));
        let [interrupt, terminate, hangup] = &mut signals;
        loop {
            select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            flag.store(true, Ordering::Relaxed);
        }
    })
}
