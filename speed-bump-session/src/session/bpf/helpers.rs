//! The engines `helper` and `signal` in a session: the helpers in covered processes, from loading to
//! unloading.
//!
//! A helper serves the process into which it was loaded, and all processes forked from there. All these
//! processes share the helper's block and its numbers for functions. Each helper has a range of the session's
//! function indices.

pub(super) mod at_work;
pub(super) mod given_up;
mod leaving;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    context::Context, handshake::allow_signals, helper_doses::HelperRanges, phase::HelperId,
    signals::SessionSignals,
};
use crate::{
    engine::bpf::{BpfEngine, switch::PolicySwitch},
    launch::Wake,
    presence::{HelperSetup, Presence},
    process::Program,
    python::helper::{Block, BlockError, words},
    session::functions::FunctionRange,
    units::Pid,
};
use at_work::AtWork;
use given_up::GivenUp;

/// How often a waiting loop checks whether it is done.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The helpers of a session.
pub(super) struct Helpers {
    /// The setup of new helpers; `None` if we may load none.
    setup: Option<HelperSetup>,
    at_work: BTreeMap<HelperId, AtWork>,
    /// Helpers that we are still loading, but no longer want.
    pub(super) given_up: GivenUp,
    next: u32,
    /// How often someone has switched the timing of calls on.
    stretches: u32,
    /// The ranges of the helpers that delay by themselves.
    ranges: HelperRanges,
    /// The delays that helpers spin on a signal, if there can be any.
    signals: Option<SessionSignals>,
    /// A helper's loading calls this when it is done.
    wake: Wake,
}

impl Helpers {
    pub(super) fn new(
        setup: Option<HelperSetup>,
        ranges: HelperRanges,
        signals: Option<SessionSignals>,
        wake: Wake,
    ) -> Self {
        let (at_work, given_up) = (BTreeMap::new(), GivenUp::default());
        // If the session times calls from the start, that counts as the first time.
        let stretches = setup.as_ref().and_then(|setup| setup.in_place).map_or(0, |of| of.timing);
        Self { setup, at_work, given_up, next: 0, stretches, ranges, signals, wake }
    }

    /// The setup of new helpers; `None` if we may load none.
    pub(super) fn setup(&self) -> Option<&HelperSetup> {
        self.setup.as_ref()
    }

    /// Sets the selector for all helpers that we load from now on.
    pub(super) fn set_selector(&mut self, selector: &Arc<[u8]>) {
        if let Some(setup) = &mut self.setup {
            setup.selector = Arc::clone(selector);
        }
    }

    /// Switches the timing of calls on or off, for present and later helpers. The helpers apply this with the
    /// next selector.
    pub(super) fn set_timing(&mut self, on: bool, context: &mut Context) {
        self.stretches = self.stretches.wrapping_add(u32::from(on)).max(u32::from(on));
        let stretch = if on { self.stretches } else { 0 };
        if let Some(in_place) = self.setup.as_mut().and_then(|setup| setup.in_place.as_mut()) {
            in_place.timing = stretch;
        }
        for (owner, block) in self.blocks() {
            if let Err(error) = block.set_timing(stretch) {
                context.warn(format!("process {owner}: its helper times calls as it did: {error}"));
            }
        }
    }

    /// A helper's loading calls this when it is done.
    pub(super) fn wake(&self) -> Wake {
        Wake::clone(&self.wake)
    }

    /// The helper with this id, if it is loaded.
    pub(super) fn get(&self, id: HelperId) -> Option<&AtWork> {
        self.at_work.get(&id)
    }

    /// The helper with this id, if it is loaded.
    pub(super) fn get_mut(&mut self, id: HelperId) -> Option<&mut AtWork> {
        self.at_work.get_mut(&id)
    }

    /// Whether any helper is loaded.
    pub(super) fn are_any(&self) -> bool {
        !self.at_work.is_empty()
    }

    /// Whether every helper has listed the functions in its process, or will not do so for now.
    pub(super) fn have_looked(&self) -> bool {
        self.at_work.values().all(|at_work| at_work.is_active || at_work.is_over || at_work.is_asleep())
    }

    /// The blocks of all helpers, each with the process into which we loaded the helper.
    pub(super) fn blocks(&self) -> Vec<(Pid, Arc<Block>)> {
        let block = |at_work: &AtWork| (at_work.owner, Arc::clone(&at_work.presence.block));
        self.at_work.values().map(block).collect()
    }

    /// The program that the process was running when we loaded this helper; `None` if the program was only
    /// starting.
    pub(super) fn program(&self, id: HelperId) -> Option<Program> {
        self.at_work.get(&id)?.presence.program().cloned()
    }

    /// A process whose functions are unknown, because one of its threads keeps the interpreter's lock while
    /// it sleeps.
    pub(super) fn asleep(&self) -> Option<Pid> {
        self.at_work.values().find(|at_work| at_work.is_asleep()).map(|at_work| at_work.owner)
    }

    /// Why processes may have functions that their helpers have not listed.
    pub(super) fn unlisted(&self) -> Vec<&'static str> {
        words::not_listed(self.at_work.values().fold(0, |bits, at_work| bits | at_work.unlisted))
    }

    /// Takes over a helper that we have loaded. If the helper delays by itself, it gets the doses now and
    /// whenever they change.
    pub(super) fn take_in(
        &mut self,
        presence: Presence,
        range: FunctionRange,
        switch: &PolicySwitch,
    ) -> HelperId {
        let id = HelperId(self.next);
        self.next += 1;
        if presence.block.delays_in_place() {
            self.ranges.add(range, &presence.block);
            let block: Weak<Block> = Arc::downgrade(&presence.block);
            if let Err(error) = switch.add_mirror(block) {
                tracing::debug!("a helper does not hear of the doses: {error}");
            }
        }
        if let Err(error) = self.bring_up_to_date(&presence.block) {
            tracing::debug!("a helper keeps the targets from when it was loaded: {error}");
        }
        self.at_work.insert(id, AtWork::new(presence, range));
        id
    }

    /// Tells a helper what has changed while we were loading it.
    fn bring_up_to_date(&self, block: &Block) -> Result<(), BlockError> {
        let Some(setup) = &self.setup else { return Ok(()) };
        let stretch = setup.in_place.as_ref().map_or(0, |in_place| in_place.timing);
        if !block.has(&setup.selector, stretch)? {
            block.set_timing(stretch)?;
            block.retarget(&setup.selector)?;
        }
        Ok(())
    }

    /// Allows signals to a process, if its helper is loaded and handles signals.
    pub(super) fn allow_signals(&self, id: HelperId, engine: &mut BpfEngine, context: &mut Context) {
        if let (Some(signals), Some(at_work)) = (&self.signals, self.at_work.get(&id)) {
            allow_signals(signals, at_work.owner, &at_work.presence.block, engine, context);
        }
    }

    /// Handles the reports of one helper.
    pub(super) fn listen_to(&mut self, id: HelperId, context: &mut Context) {
        if let Some(at_work) = self.at_work.get_mut(&id) {
            at_work.listen(id, context);
        }
    }

    /// Handles the reports of all helpers.
    pub(super) fn listen(&mut self, context: &mut Context) {
        for (id, at_work) in &mut self.at_work {
            at_work.listen(*id, context);
        }
    }
}
