//! How calls become visible. Only this file knows which mechanism a version has.

use core::{
    ffi::c_void,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    block::Block,
    fault::Fault,
    frame_hook::{
        self,
        evaluator::{self, Address},
        slot,
    },
    monitoring,
    python::{
        api::Api,
        gil::{Gil, Python},
    },
    times,
};

/// The mechanism of this interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// `sys.monitoring`, from 3.12 on.
    Monitoring,
    /// A frame evaluation hook (PEP 523), up to 3.11.
    FrameHook,
}

impl Coverage {
    /// The mechanism of this version.
    pub(crate) fn for_version(api: &Api) -> Self {
        if api.version.minor() >= (3, 12) { Self::Monitoring } else { Self::FrameHook }
    }

    /// Starts to report calls. In a forked child, keeps what was inherited.
    pub(crate) fn install(self, gil: &mut Gil, block: Block) -> Result<(), Fault> {
        times::begin()?;
        match self {
            Self::Monitoring => monitoring::install(gil.python()),
            Self::FrameHook => frame_hook::install(gil, block),
        }
    }

    /// Applies a changed selector.
    pub(crate) fn rejudge(self, python: Python<'_>) -> Result<(), Fault> {
        match self {
            Self::Monitoring => monitoring::rejudge(python),
            Self::FrameHook => frame_hook::rejudge(python),
        }
    }

    /// Must be called after all code was judged again.
    pub(crate) fn surveyed(self, python: Python<'_>) -> Result<(), Fault> {
        match self {
            Self::Monitoring => Ok(()),
            Self::FrameHook => frame_hook::surveyed(python),
        }
    }

    /// Starts to cover sub-interpreters. `false`: they cannot be covered.
    pub(crate) fn begin_elsewhere(self, api: &'static Api, is_timed: bool) -> bool {
        match self {
            Self::Monitoring => monitoring::elsewhere::begin(api, is_timed),
            Self::FrameHook => frame_hook::elsewhere::hook(api).is_some(),
        }
    }

    /// The hook that starts reports in a sub-interpreter.
    pub(crate) fn hook_elsewhere(self, api: &Api) -> Option<Address> {
        match self {
            Self::Monitoring => monitoring::elsewhere::hook(api),
            Self::FrameHook => frame_hook::elsewhere::hook(api),
        }
    }

    /// Stops covering sub-interpreters.
    pub(crate) fn end_elsewhere(self) {
        match self {
            Self::Monitoring => monitoring::elsewhere::end(),
            Self::FrameHook => {}
        }
    }

    /// Sets the hook of [`Coverage::hook_elsewhere`] at a sub-interpreter's place. Returns whether the hook
    /// is there.
    pub(crate) fn put_elsewhere(self, api: &Api, place: &AtomicPtr<c_void>, hook: Address) -> bool {
        match self {
            Self::Monitoring => {
                place.load(Ordering::Acquire) == hook || evaluator::replace_default(place, hook)
            }
            Self::FrameHook => frame_hook::elsewhere::install(api, place, hook),
        }
    }

    /// Undoes in a sub-interpreter what its hook did. Needs the GIL.
    pub(crate) fn undo_elsewhere(self, python: Python<'_>, place: &AtomicPtr<c_void>) {
        match (self, self.hook_elsewhere(python.api)) {
            // At its next call, the hook itself stops the reports.
            (Self::Monitoring, Some(hook)) => drop(evaluator::replace_default(place, hook)),
            (Self::Monitoring, None) => {}
            (Self::FrameHook, _) => frame_hook::elsewhere::uninstall(python, place),
        }
    }

    /// Whether [`Coverage::check`] is needed, which takes the GIL.
    pub(crate) fn check_is_due(self) -> bool {
        match self {
            Self::Monitoring => monitoring::check_is_due(),
            // `look` checks the place all the time.
            Self::FrameHook => false,
        }
    }

    /// When to check next whether calls are reported, in ms; at most `latest_ms`.
    pub(crate) fn next_look_ms(self, latest_ms: u32) -> u32 {
        match self {
            Self::Monitoring => latest_ms,
            Self::FrameHook => slot::next_look_ms(latest_ms),
        }
    }

    /// Checks without the GIL, `after_ms` after the last time. Returns whether [`Coverage::see_to`] is
    /// needed.
    pub(crate) fn look(self, api: &Api, block: Block, after_ms: u32) -> bool {
        match self {
            Self::Monitoring => false,
            Self::FrameHook => slot::look(api, block, after_ms),
        }
    }

    /// Makes calls reported again, after [`Coverage::look`] returned true.
    pub(crate) fn see_to(self, python: Python<'_>) {
        match self {
            Self::Monitoring => {}
            Self::FrameHook => slot::see_to(python),
        }
    }

    /// Checks whether calls are reported. Returns bits of `notice` for the user.
    pub(crate) fn check(self, python: Python<'_>) -> u32 {
        match self {
            Self::Monitoring => monitoring::check(python),
            Self::FrameHook => 0,
        }
    }

    /// Undoes [`Coverage::install`]. Returns bits of `notice` for the user.
    pub(crate) fn uninstall(self, python: Python<'_>) -> u32 {
        let lost = match self {
            Self::Monitoring => monitoring::uninstall(python),
            Self::FrameHook => frame_hook::uninstall(python),
        };
        times::end();
        lost
    }
}
