//! What engines can do. Whoever asks for more is told before anything is touched.

use super::EngineKind;

/// What one engine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Slow Python functions down.
    pub python: bool,
    /// Slow USDT probes down.
    pub usdt: bool,
    /// Delay every Nth call.
    pub frequency: bool,
    /// Slow several processes down in one session, other than by their common ancestor.
    pub several_processes: bool,
    /// Leave children out.
    pub without_children: bool,
    /// Begin with a command's first instruction.
    pub commands: bool,
    /// Have doses come into force together, in one moment.
    pub switches_together: bool,
    /// Stop delaying by itself when the tool is killed or stopped.
    pub expires: bool,
}

impl EngineKind {
    /// What this engine can do.
    pub fn capabilities(self) -> Capabilities {
        let all = |can| Capabilities {
            python: can,
            usdt: can,
            frequency: can,
            several_processes: can,
            without_children: can,
            commands: can,
            switches_together: can,
            expires: can,
        };
        match self {
            Self::Bpf | Self::Signal => all(true),
            // It counts in its own targets, by process and with all descendants, and knows nothing of us.
            Self::Kmod => all(false),
        }
    }
}
