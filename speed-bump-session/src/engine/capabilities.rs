//! What engines can do. If a request needs more, we refuse it before we change anything.

/// The capabilities of an engine. Each field says whether the engine can do this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Slow native functions down.
    pub native: bool,
    /// Slow Python functions down.
    pub python: bool,
    /// Slow USDT probes down.
    pub usdt: bool,
    /// See who calls a native function.
    pub native_callers: bool,
    /// Delay only every Nth call.
    pub frequency: bool,
    /// Slow down several processes in one session, even if these processes have no common ancestor.
    pub several_processes: bool,
    /// Leave out children.
    pub without_children: bool,
    /// Start with a command's first instruction.
    pub commands: bool,
    /// Make several doses take effect at the same time.
    pub switches_together: bool,
    /// Bound the delays of each thread.
    pub bound: bool,
    /// Stop all delays by itself when the tool is killed or stopped.
    pub expires: bool,
}

impl Capabilities {
    /// An engine that can do everything.
    pub const ALL: Self = Self::all_are(true);
    /// An engine that can do nothing.
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
