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

/// The window. It is closed until it is opened, and doses hold as long as it is renewed.
#[derive(Debug)]
pub(super) struct Window {
    switch: Arc<PolicySwitch>,
    renewal: Renewal,
    /// What the processes had waited for when it opened.
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

    /// What sets policies and the window, for whatever thread.
    pub(super) fn switch(&self) -> &Arc<PolicySwitch> {
        &self.switch
    }

    /// From here on `start_after` counts.
    pub(super) fn open<'a>(&mut self, processes: impl Iterator<Item = &'a Process>, state: &mut State) {
        self.waiting = Some(Waiting::of(processes));
        self.came_round();
        // To attach may have taken so long that doses have lapsed.
        self.renewal.renew();
        // Nothing was delayed before.
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

    /// The event loop is at work: doses go on.
    pub(super) fn came_round(&self) {
        self.renewal.came_round();
    }

    /// For how long doses were not renewed since this was asked last, as the event loop did not come round.
    pub(super) fn take_lapsed(&self) -> Nanos {
        self.renewal.take_lapsed()
    }

    /// Nothing is delayed any more: for good.
    pub(super) fn close(&self) {
        self.switch.stop();
    }

    /// What the processes had waited for when it opened; the first caller gets it.
    pub(super) fn take_waiting(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }
}
