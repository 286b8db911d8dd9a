//! Engines spin the delays. An engine does not know targets or Python.
//!
//! A session sets doses in its engine through [`Policies`], and reads counts through [`Counters`].
//! [`Capabilities`] list what an engine can do.

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

/// Which engine spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// The BPF program itself spins, in the kernel, on the thread that made the call.
    Bpf,
    /// The helper spins in the process, in user mode, when it gets a signal. The BPF program sends this
    /// signal to the calling thread.
    Signal,
    /// The helper spins in the process, in user mode, without a trap. Only for Python functions.
    Helper,
    /// The kernel module speed_bump spins, in the kernel, on the calling thread.
    Kmod,
}

/// All engines, a line for each: its name for users, and its capabilities.
const ENGINES: [(EngineKind, &str, Capabilities); 4] = [
    (EngineKind::Bpf, "bpf", Capabilities::ALL),
    (EngineKind::Signal, "signal", Capabilities::ALL),
    // The helper only sees calls of Python functions.
    (EngineKind::Helper, "helper", Capabilities { native: false, usdt: false, ..Capabilities::ALL }),
    // The module has its own targets, which apply to a process and all its descendants. It does not know our
    // numbers.
    (EngineKind::Kmod, "kmod", Capabilities { native: true, ..Capabilities::NONE }),
];

impl EngineKind {
    /// The engine's capabilities.
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

/// The engine that the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// `helper` for Python functions that it covers. Otherwise `bpf`, or `signal` for delays above
    /// [`signal::automatic_above`] in processes with a helper.
    #[default]
    Auto,
    /// Only this engine.
    Only(EngineKind),
}

impl EngineChoice {
    /// Whether the helper delays the Python functions that it covers.
    pub fn delays_in_helper(self) -> bool {
        matches!(self, Self::Auto | Self::Only(EngineKind::Helper))
    }

    /// Whether the session needs the helper in the process.
    pub fn insists_on_helper(self) -> bool {
        matches!(self, Self::Only(EngineKind::Signal | EngineKind::Helper))
    }

    /// The engine for a delay at a probe, in a process with a helper.
    pub fn engine(self, delay: Nanos, form: Form) -> EngineKind {
        match self {
            Self::Auto if delay > signal::automatic_above(form) => EngineKind::Signal,
            // A delay of 0 needs no spin.
            Self::Only(EngineKind::Signal) if delay > Nanos(0) => EngineKind::Signal,
            Self::Only(EngineKind::Kmod) => EngineKind::Kmod,
            Self::Auto | Self::Only(_) => EngineKind::Bpf,
        }
    }

    /// Whether the session needs the helper for its signals.
    pub fn wants_helper(self) -> bool {
        self == Self::Only(EngineKind::Signal)
    }

    /// Whether the kernel module does everything, without BPF.
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
