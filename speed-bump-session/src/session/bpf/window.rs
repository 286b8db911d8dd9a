//! When calls are delayed: opens, renews and closes the window of a session's doses.

use std::{io, sync::Arc, time::Instant};

use super::renewal::Renewal;
use crate::{
    engine::bpf::switch::PolicySwitch,
    process::Process,
    session::{state::State, waiting::Waiting},
    sys::clock::now,
    units::Nanos,
};

/// The window. It is closed until it is opened, and then stays open as long as it is renewed.
#[derive(Debug)]
pub(super) struct Window {
    switch: Arc<PolicySwitch>,
    renewal: Renewal,
    /// How long the processes had waited when it opened.
    waiting: Option<Waiting>,
}

impl Window {
    /// Renews doses from here on.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(switch: &Arc<PolicySwitch>) -> io::Result<Self> {
        let renewal = Renewal::start(Arc::clone(switch))?;
        Ok(Self { switch: Arc::clone(switch), renewal, waiting: None })
    }

    /// Sets policies and the window, from any thread.
    pub(super) fn switch(&self) -> &Arc<PolicySwitch> {
        &self.switch
    }

    /// `start_after` counts from here on.
    pub(super) fn open<'a>(&mut self, processes: impl Iterator<Item = &'a Process>, state: &mut State) {
        self.waiting = Some(Waiting::read(processes));
        self.came_round();
        // Attaching may have taken so long that the doses have expired.
        self.renewal.renew();
        // Nothing was delayed until now.
        self.renewal.take_lapsed();
        state.started = Instant::now();
        let start_ns = now().0.saturating_add(Nanos::from(state.start_after).0);
        let end_ns = match state.duration() {
            Some(duration) => start_ns.saturating_add(Nanos::from(duration).0),
            None => u64::MAX,
        };
        self.switch.open(Nanos(start_ns), Nanos(end_ns));
    }

    /// Whether it was opened.
    pub(super) fn was_opened(&self) -> bool {
        self.waiting.is_some()
    }

    /// The event loop came round: doses stay in force.
    pub(super) fn came_round(&self) {
        self.renewal.came_round();
    }

    /// How long doses were not renewed because the event loop did not come round, since the last call.
    pub(super) fn take_lapsed(&self) -> Nanos {
        self.renewal.take_lapsed()
    }

    /// From here on nothing is delayed any more.
    pub(super) fn close(&self) {
        self.switch.stop();
    }

    /// How long the processes had waited when it opened; only the first caller gets it.
    pub(super) fn take_waiting(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }
}
