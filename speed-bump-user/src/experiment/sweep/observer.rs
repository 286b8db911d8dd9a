//! The observer of a running sweep.

use std::fmt;

use crate::{
    experiment::{record::Measured, run::Now},
    prepare::notice::Notice,
    session::handle::Handle,
};

/// Observes a running sweep, on the sweep's thread. `()` is an observer that does nothing.
pub trait Observer {
    /// The preparation begins this step.
    fn step(&mut self, _step: Step) {}

    /// A line for the user about the preparation.
    fn line(&mut self, _text: &str) {}

    /// Notices about functions and processes.
    fn notices(&mut self, _notices: &[Notice]) {}

    /// A warning of the session, for the user.
    fn warning(&mut self, _text: &str) {}

    /// The preparation is over; slices begin.
    fn prepared(&mut self) {}

    /// This session has measured a slice.
    fn slice(&mut self, _measured: &Measured, _now: Now, _session: &Handle) {}

    /// The session has detached. The analysis begins.
    fn detached(&mut self) {}
}

impl Observer for () {}

/// A step of the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Checking processes and arguments.
    Prepare,
    /// Reading files and attaching probes.
    Attach,
    /// Waiting for units of work after the load was started.
    Load,
    /// Sampling stacks.
    Sample,
    /// Counting calls, to choose functions and the unit of work.
    CountCalls,
    /// Counting and timing calls.
    Census,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare",
            Self::Attach => "attach",
            Self::Load => "load",
            Self::Sample => "sample",
            Self::CountCalls => "count calls",
            Self::Census => "census",
        })
    }
}
