//! What engines can do. Whoever asks for more is told before anything is touched.

/// What one engine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Slow native functions down.
    pub native: bool,
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

impl Capabilities {
    /// Everything.
    pub const ALL: Self = Self::all_are(true);
    /// Nothing.
    pub const NONE: Self = Self::all_are(false);

    const fn all_are(can: bool) -> Self {
        Self {
            native: can,
            python: can,
            usdt: can,
            frequency: can,
            several_processes: can,
            without_children: can,
            commands: can,
            switches_together: can,
            expires: can,
        }
    }
}
