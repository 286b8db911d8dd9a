//! The calls of timed native functions that are in progress on a thread, as the BPF programs keep them.
//!
//! Stacks grow downwards: of two calls in progress, the one that was made by the other has its return address
//! lower. So a call is known by where its return address lies, and calls whose end was never seen (an
//! exception, `longjmp`) show as soon as another one begins or ends above them.
//!
//! Everything here has bounds that the kernel's verifier can see, whatever lies in the map. The caller says
//! how to run loops over the calls ([`Turns`]): the verifier walks through each turn of an ordinary loop,
//! with all code that follows it, and takes seconds for that.

use core::hint::black_box;

/// How deep calls of timed functions may be nested; a power of two.
pub const CALLS_DEPTH: u32 = 64;

/// A call in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TimedCall {
    /// Where its return address lies.
    pub stack: u64,
    /// When it began.
    pub entered_ns: u64,
    /// Time in timed functions that it called, without what the tool took there.
    pub nested_ns: u64,
    /// The tool's own time in those functions.
    pub tool_ns: u64,
    /// Number of the function: its position in the map of functions.
    pub function: u32,
    /// What the trap at its entry cost its callers; 0 where that is part of a delay.
    pub entry_ns: u32,
    /// What the tool took between [`entered_ns`](Self::entered_ns) and the clock reading at its end, as
    /// [`SiteArguments::way_ns`](crate::SiteArguments::way_ns).
    pub way_ns: u32,
    /// 1 where another call of the function was in progress when it began.
    pub is_recursive: u32,
}

/// The calls in progress on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CallStack {
    /// How many there are.
    pub depth: u32,
    /// The number of the image that the calls belong to: [`Cookie::process`](crate::Cookie::process).
    pub process: u32,
    /// The outermost first.
    pub calls: [TimedCall; CALLS_DEPTH as usize],
}

/// What [`CallStack::enter`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Where the call is in [`CallStack::calls`]; `None` where there is no room for it.
    pub position: Option<u32>,
    /// Whether another call of the function is in progress.
    pub is_recursive: bool,
    /// How many calls turned out to be over although their end was not seen.
    pub dropped: u32,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its time without that of other timed functions.
    pub own_ns: u64,
    /// Its time with them; 0 of a recursive call.
    pub cumulative_ns: u64,
}

/// The body of a loop.
pub trait Turn {
    /// One turn, by its number. Returns whether it was the last.
    fn turn(&mut self, number: u32) -> bool;
}

/// A way to run a loop.
pub trait Turns {
    /// Runs at most this many turns.
    fn run<T: Turn>(most: u32, turn: &mut T);
}

/// Searches for a call of a function among those in progress.
struct Search<'a> {
    calls: &'a [TimedCall; CALLS_DEPTH as usize],
    function: u32,
    is_found: bool,
}

impl Turn for Search<'_> {
    #[inline(always)]
    fn turn(&mut self, number: u32) -> bool {
        self.is_found = self.calls[place(number)].function == self.function;
        self.is_found
    }
}

/// Adds up the nested times of calls whose return addresses lie below a limit.
struct Dropping<'a> {
    calls: &'a [TimedCall; CALLS_DEPTH as usize],
    limit: u64,
    depth: u32,
    nested_ns: u64,
    tool_ns: u64,
}

impl Turn for Dropping<'_> {
    #[inline(always)]
    fn turn(&mut self, _number: u32) -> bool {
        let depth = self.depth;
        if depth == 0 {
            return true;
        }
        let call = &self.calls[place(depth - 1)];
        if call.stack >= self.limit {
            return true;
        }
        self.nested_ns += call.nested_ns;
        self.tool_ns += call.tool_ns + call.entry_ns as u64;
        self.depth = depth - 1;
        false
    }
}

impl CallStack {
    /// No call in progress.
    pub const NONE: Self = Self {
        depth: 0,
        process: 0,
        calls: [TimedCall {
            stack: 0,
            entered_ns: 0,
            nested_ns: 0,
            tool_ns: 0,
            function: 0,
            entry_ns: 0,
            way_ns: 0,
            is_recursive: 0,
        }; CALLS_DEPTH as usize],
    };

    /// A call of `function` begins. Its return address lies at `stack`.
    #[inline(always)]
    pub fn enter<T: Turns>(&mut self, process: u32, function: u32, stack: u64, entered_ns: u64) -> Entered {
        if self.process != process {
            // The thread has executed another program since, or another thread has the same number now.
            self.process = process;
            self.depth = 0;
        }
        let dropped = self.drop_below::<T>(stack.saturating_add(1));
        let is_recursive = self.has::<T>(function);
        let depth = self.depth;
        if depth >= CALLS_DEPTH {
            return Entered { position: None, is_recursive, dropped };
        }
        let call = &mut self.calls[place(depth)];
        call.stack = stack;
        call.entered_ns = entered_ns;
        call.nested_ns = 0;
        call.tool_ns = 0;
        call.function = function;
        call.entry_ns = 0;
        call.way_ns = 0;
        call.is_recursive = is_recursive as u32;
        self.depth = depth + 1;
        Entered { position: Some(depth), is_recursive, dropped }
    }

    /// The call at a position that [`enter`](Self::enter) returned.
    #[inline(always)]
    pub fn at(&mut self, position: u32) -> &mut TimedCall {
        &mut self.calls[place(position)]
    }

    /// Returns the function of the innermost call in progress, if its return address lies at `stack`, or else
    /// [`NO_FUNCTION`](crate::NO_FUNCTION).
    #[inline(always)]
    pub fn function_at(&self, stack: u64) -> u32 {
        let depth = self.depth;
        if depth == 0 || depth > CALLS_DEPTH {
            return crate::NO_FUNCTION;
        }
        let call = &self.calls[place(depth - 1)];
        if call.stack == stack { call.function } else { crate::NO_FUNCTION }
    }

    /// Ends the call of `function` whose return address lies at `stack`; `None` if it is not known when the
    /// call began. Also returns how many calls turned out to be over although their end was not seen.
    #[inline(always)]
    pub fn leave<T: Turns>(
        &mut self,
        process: u32,
        function: u32,
        stack: u64,
        now_ns: u64,
    ) -> (Option<Left>, u32) {
        if self.process != process {
            return (None, 0);
        }
        let dropped = self.drop_below::<T>(stack);
        let depth = self.depth;
        if depth == 0 || depth > CALLS_DEPTH {
            return (None, dropped);
        }
        let call = &self.calls[place(depth - 1)];
        if call.stack != stack || call.function != function {
            return (None, dropped);
        }
        let tool_ns = call.tool_ns + call.way_ns as u64;
        // The tool's own time is an estimate. Called functions took no longer than the call.
        let real_ns = now_ns.saturating_sub(call.entered_ns).saturating_sub(tool_ns).max(call.nested_ns);
        let (nested_ns, is_recursive) = (call.nested_ns, call.is_recursive);
        let tool_ns = call.tool_ns + call.entry_ns as u64;
        self.depth = depth - 1;
        self.charge(real_ns, tool_ns);
        let cumulative_ns = if is_recursive == 0 { real_ns } else { 0 };
        (Some(Left { own_ns: real_ns - nested_ns, cumulative_ns }), dropped)
    }

    /// The call that has just begun at `stack` is not delayed: it runs from `now_ns` on, and the trap at its
    /// entry cost its callers `trap_ns`. If the call is not among those in progress, the trap cost the
    /// innermost of those `trap_ns`.
    #[inline(always)]
    pub fn is_not_delayed(&mut self, function: u32, stack: u64, now_ns: u64, trap_ns: u32) {
        let depth = self.depth;
        if depth == 0 {
            return;
        }
        let call = &mut self.calls[place(depth - 1)];
        if call.stack == stack && call.function == function {
            call.entered_ns = now_ns;
            call.entry_ns = trap_ns;
        } else {
            call.tool_ns += trap_ns as u64;
        }
    }

    /// Adds to the innermost call in progress the time of timed functions that it called, and the tool's own
    /// time there.
    #[inline(always)]
    pub fn charge(&mut self, nested_ns: u64, tool_ns: u64) {
        let depth = self.depth;
        if depth == 0 {
            return;
        }
        let call = &mut self.calls[place(depth - 1)];
        call.nested_ns += nested_ns;
        call.tool_ns += tool_ns;
    }

    /// Drops the calls whose return addresses lie below the limit, and returns how many. The functions that
    /// they called count for their callers.
    #[inline(always)]
    pub fn drop_below<T: Turns>(&mut self, limit: u64) -> u32 {
        let before = self.depth;
        if before == 0 || self.calls[place(before - 1)].stack >= limit {
            return 0;
        }
        let mut dropping = Dropping { calls: &self.calls, limit, depth: before, nested_ns: 0, tool_ns: 0 };
        T::run(CALLS_DEPTH, &mut dropping);
        let Dropping { depth, nested_ns, tool_ns, .. } = dropping;
        self.depth = depth;
        self.charge(nested_ns, tool_ns);
        before - depth
    }

    /// Whether a call of a function is in progress.
    #[inline(always)]
    fn has<T: Turns>(&self, function: u32) -> bool {
        let depth = self.depth;
        if depth == 0 {
            return false;
        }
        let mut search = Search { calls: &self.calls, function, is_found: false };
        T::run(if depth < CALLS_DEPTH { depth } else { CALLS_DEPTH }, &mut search);
        search.is_found
    }
}

/// Makes any number a valid position. The compiler must not know that the number is valid: it would drop the
/// mask that the verifier needs.
#[inline(always)]
fn place(position: u32) -> usize {
    (black_box(position) & (CALLS_DEPTH - 1)) as usize
}

#[cfg(test)]
mod tests;
