//! The signals that end a session.

use std::{
    io,
    sync::{Arc, OnceLock},
    thread,
};

use tokio::signal::unix::{SignalKind, signal};

use crate::session::stop::Stop;

/// Signals that stop a session, from here on: they end the process no more, and none is lost.
#[derive(Debug)]
pub(super) struct StopSignals {
    first: Arc<OnceLock<&'static str>>,
}

impl StopSignals {
    /// Has SIGINT, SIGTERM and SIGHUP ask for this stop, on a thread of their own: the session may be waiting
    /// for the kernel.
    ///
    /// # Errors
    /// The handlers could not be installed, or the thread not started.
    pub(super) fn ask(stop: Stop) -> io::Result<Self> {
        Self::on_each(move || stop.ask())
    }

    /// Has them do this, each time that one comes.
    ///
    /// # Errors
    /// As [`StopSignals::ask`].
    pub(super) fn on_each(act: impl Fn() + Send + 'static) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut interrupt, mut terminate, mut hangup) = {
            let _entered = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            )
        };
        let first = Arc::new(OnceLock::new());
        let heard = Arc::clone(&first);
        let listen = move || {
            runtime.block_on(async {
                loop {
                    let name = tokio::select! {
                        _ = interrupt.recv() => "SIGINT",
                        _ = terminate.recv() => "SIGTERM",
                        _ = hangup.recv() => "SIGHUP",
                    };
                    let _ = heard.set(name);
                    act();
                }
            })
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(Self { first })
    }

    /// The first that came.
    pub(super) fn first(&self) -> Option<&'static str> {
        self.first.get().copied()
    }
}
