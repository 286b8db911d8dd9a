//! Who hears of a sweep while it runs.

use std::fmt;

use crate::{
    experiment::{record::Measured, run::Now},
    prepare::notice::Notice,
    session::handle::Handle,
};

/// Hears of a sweep while it runs, on the thread that runs it. `()` is one that does nothing.
pub trait Observer {
    /// Preparation is at this step now.
    fn step(&mut self, _step: Step) {}

    /// What preparation does or has found, a line for people.
    fn line(&mut self, _text: &str) {}

    /// What is to be known of the functions and processes.
    fn notices(&mut self, _notices: &[Notice]) {}

    /// What is wrong with the session, for people.
    fn warning(&mut self, _text: &str) {}

    /// Preparation is over. Slices begin.
    fn prepared(&mut self) {}

    /// A slice was measured in this session.
    fn slice(&mut self, _measured: &Measured, _now: Now, _session: &Handle) {}

    /// The session is over: nothing is attached any more. What was measured is worked out now.
    fn detached(&mut self) {}
}

impl Observer for () {}

/// A step of the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Processes and arguments are looked at.
    Prepare,
    /// Files are read, and probes attached.
    Attach,
    /// Stacks are sampled.
    Sample,
    /// Calls are counted, to choose functions and the unit of work.
    CountCalls,
    /// Calls are counted, and timed.
    Census,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare",
            Self::Attach => "attach",
            Self::Sample => "sample",
            Self::CountCalls => "count calls",
            Self::Census => "census",
        })
    }
}
