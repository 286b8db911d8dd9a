//! What engines can do. A request for more is refused before anything is changed.

/// The capabilities of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Slow native functions down.
    pub native: bool,
    /// Slow Python functions down.
    pub python: bool,
    /// Slow USDT probes down.
    pub usdt: bool,
    /// Tell who calls a native function.
    pub native_callers: bool,
    /// Delay every Nth call.
    pub frequency: bool,
    /// Slow several processes down in one session, other than by their common ancestor.
    pub several_processes: bool,
    /// Leave out children.
    pub without_children: bool,
    /// Start with a command's first instruction.
    pub commands: bool,
    /// Make doses take effect at the same time.
    pub switches_together: bool,
    /// Keep to a bound on what each thread is delayed.
    pub bound: bool,
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
            native_callers: can,
            frequency: can,
            several_processes: can,
            without_children: can,
            commands: can,
            switches_together: can,
            bound: can,
            expires: can,
        }
    }
}
