//! Engines: who spins. `bpf` is the only one yet; an engine knows nothing of targets or of Python.

use std::fmt;

use serde::Serialize;

pub mod bpf;

/// Who spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// The BPF program itself, in the kernel, on the thread that made the call.
    Bpf,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bpf => "bpf",
        })
    }
}
