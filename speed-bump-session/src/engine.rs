//! Engines: who spins. An engine knows nothing of targets or of Python.
//!
//! A session tells its engine of doses by [`Policies`], and learns what was counted by [`Counters`]. What an
//! engine cannot do, its [`Capabilities`] say.

mod capabilities;
mod interface;

use std::{fmt, str::FromStr};

use serde::Serialize;

use crate::units::Nanos;
use bpf::Form;

pub mod bpf;
pub mod kmod;
pub mod signal;

pub use capabilities::Capabilities;
pub use interface::{
    Counters, Dose, Engine, NumberedDose, Pair, Policies, SetError, TakeHistogram, TakePair,
};

/// Who spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// The BPF program itself, in the kernel, on the thread that made the call.
    Bpf,
    /// The helper in the process, in user mode, on a signal that the BPF program sends to that thread.
    Signal,
    /// The helper in the process, in user mode, with no trap: for Python functions.
    Helper,
    /// The kernel module speed_bump, in the kernel, on that thread.
    Kmod,
}

/// All engines, a line for each: what users call it, and what it can do.
const ENGINES: [(EngineKind, &str, Capabilities); 4] = [
    (EngineKind::Bpf, "bpf", Capabilities::ALL),
    (EngineKind::Signal, "signal", Capabilities::ALL),
    // It hears of calls from Python, and of nothing else.
    (EngineKind::Helper, "helper", Capabilities { native: false, usdt: false, ..Capabilities::ALL }),
    // It counts in targets of its own, by process and with all descendants, and knows nothing of us.
    (EngineKind::Kmod, "kmod", Capabilities { native: true, ..Capabilities::NONE }),
];

impl EngineKind {
    /// What this engine can do.
    pub fn capabilities(self) -> Capabilities {
        let of = ENGINES.iter().find(|(kind, ..)| *kind == self);
        of.map_or(Capabilities::NONE, |(.., capabilities)| *capabilities)
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = ENGINES.iter().find(|(kind, ..)| kind == self);
        f.pad(of.map_or("", |(_, name, _)| name))
    }
}

/// Which engine the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// `helper` for Python functions that come through it. Else `signal` for delays above
    /// [`signal::automatic_above`] in processes that the helper is in, and `bpf`.
    #[default]
    Auto,
    /// This one alone.
    Only(EngineKind),
}

impl EngineChoice {
    /// Whether the helper delays the Python functions that come through it.
    pub fn delays_in_helper(self) -> bool {
        matches!(self, Self::Auto | Self::Only(EngineKind::Helper))
    }

    /// Whether there is nothing without the helper in the process.
    pub fn insists_on_helper(self) -> bool {
        matches!(self, Self::Only(EngineKind::Signal | EngineKind::Helper))
    }

    /// The engine for a delay of what is probed, in a process that the helper is in.
    pub fn engine(self, delay: Nanos, form: Form) -> EngineKind {
        match self {
            Self::Auto if delay > signal::automatic_above(form) => EngineKind::Signal,
            // Nothing to spin.
            Self::Only(EngineKind::Signal) if delay > Nanos(0) => EngineKind::Signal,
            Self::Only(EngineKind::Kmod) => EngineKind::Kmod,
            Self::Auto | Self::Only(_) => EngineKind::Bpf,
        }
    }

    /// Whether the helper is wanted for its signals alone.
    pub fn wants_helper(self) -> bool {
        self == Self::Only(EngineKind::Signal)
    }

    /// Whether the kernel module is to do it, with nothing of BPF.
    pub fn is_kmod(self) -> bool {
        self == Self::Only(EngineKind::Kmod)
    }
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let named = ENGINES.iter().find(|(_, name, _)| *name == text);
        named.map(|(kind, ..)| Self::Only(*kind)).ok_or_else(|| {
            let names: Vec<&str> = ENGINES.iter().map(|(_, name, _)| *name).collect();
            format!("`{text}` is no engine: expected {} or auto", names.join(", "))
        })
    }
}
