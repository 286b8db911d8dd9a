//! The window of a session's doses: the time in which calls are delayed. This module opens, renews and closes
//! the window.

use std::{io, sync::Arc, time::Instant};

use super::renewal::Renewal;
use crate::{
    engine::bpf::switch::PolicySwitch,
    process::Process,
    session::{state::State, waiting::Waiting},
    sys::clock::now,
    units::Nanos,
};

/// The window. Once it is open, it stays open as long as someone renews it.
#[derive(Debug)]
pub(super) struct Window {
    switch: Arc<PolicySwitch>,
    renewal: Renewal,
    /// How long the processes had waited when the window opened.
    waiting: Option<Waiting>,
}

impl Window {
    /// Starts to renew doses. The window is still closed.
    ///
    /// # Errors
    /// We cannot start the thread.
    pub(super) fn start(switch: &Arc<PolicySwitch>) -> io::Result<Self> {
        let renewal = Renewal::start(Arc::clone(switch))?;
        Ok(Self { switch: Arc::clone(switch), renewal, waiting: None })
    }

    /// The switch that sets policies and the window. Any thread may use it.
    pub(super) fn switch(&self) -> &Arc<PolicySwitch> {
        &self.switch
    }

    /// Opens the window. `start_after` counts from now on.
    pub(super) fn open<'a>(&mut self, processes: impl Iterator<Item = &'a Process>, state: &mut State) {
        self.waiting = Some(Waiting::read(processes));
        self.came_round();
        // Attaching may have taken so long that the doses have expired.
        self.renewal.renew();
        // Nothing was delayed until now, so no dose was missed.
        self.renewal.take_lapsed();
        state.started = Instant::now();
        let start_ns = now().0.saturating_add(Nanos::from(state.start_after).0);
        let end_ns = match state.duration() {
            Some(duration) => start_ns.saturating_add(Nanos::from(duration).0),
            None => u64::MAX,
        };
        self.switch.open(Nanos(start_ns), Nanos(end_ns));
    }

    /// Whether someone has opened the window.
    pub(super) fn was_opened(&self) -> bool {
        self.waiting.is_some()
    }

    /// Records that the event loop came round, so that doses stay in force.
    pub(super) fn came_round(&self) {
        self.renewal.came_round();
    }

    /// How long nobody has renewed doses since the last call, because the event loop did not come round.
    pub(super) fn take_lapsed(&self) -> Nanos {
        self.renewal.take_lapsed()
    }

    /// Stops all delays.
    pub(super) fn close(&self) {
        self.switch.stop();
    }

    /// How long the processes had waited when the window opened. Only the first call returns it.
    pub(super) fn take_waiting(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }
}
