//! How calls become visible: the one place that knows which mechanism a version has.

use crate::{
    fault::Fault,
    frame_hook, monitoring,
    python::{api::Api, gil::Python},
    times,
};

/// The mechanism of this interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// `sys.monitoring`, from 3.12 on.
    Monitoring,
    /// A frame evaluation hook (PEP 523), before.
    FrameHook,
}

impl Coverage {
    /// What there is in this version.
    pub(crate) fn of(api: &Api) -> Self {
        if api.version.minor() >= (3, 12) { Self::Monitoring } else { Self::FrameHook }
    }

    /// Has calls reported. In a forked child, what was inherited is kept.
    pub(crate) fn install(self, python: Python<'_>) -> Result<(), Fault> {
        times::begin()?;
        match self {
            Self::Monitoring => monitoring::install(python),
            Self::FrameHook => frame_hook::install(python),
        }
    }

    /// After the selector changed.
    pub(crate) fn rejudge(self, python: Python<'_>) -> Result<(), Fault> {
        match self {
            Self::Monitoring => monitoring::rejudge(python),
            Self::FrameHook => frame_hook::rejudge(python),
        }
    }

    /// After everything was judged anew.
    pub(crate) fn surveyed(self, python: Python<'_>) -> Result<(), Fault> {
        match self {
            Self::Monitoring => Ok(()),
            Self::FrameHook => frame_hook::surveyed(python),
        }
    }

    /// Whether [`Coverage::check`] is worth the GIL.
    pub(crate) fn check_is_due(self) -> bool {
        match self {
            Self::Monitoring => monitoring::check_is_due(),
            Self::FrameHook => frame_hook::check_is_due(),
        }
    }

    /// What the user should hear of, as bits of `notice`.
    pub(crate) fn check(self, python: Python<'_>) -> u32 {
        match self {
            Self::Monitoring => monitoring::check(python),
            Self::FrameHook => frame_hook::check(python),
        }
    }

    /// Undoes [`Coverage::install`]; what the user should hear of, as bits of `notice`.
    pub(crate) fn uninstall(self, python: Python<'_>) -> u32 {
        let lost = match self {
            Self::Monitoring => monitoring::uninstall(python),
            Self::FrameHook => frame_hook::uninstall(python),
        };
        times::end();
        lost
    }
}
