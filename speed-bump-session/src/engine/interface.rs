//! The interface between a session and its engine: doses go to the engine, counters come back.

use std::{fmt::Debug, io};

use speed_bump_abi::{FunctionStats, Histogram, callers::PairTimes, times::FunctionTimes};

use super::{EngineKind, bpf::EngineError, kmod::KmodError, signal::UnderWay};
use crate::{policy::DelayBound, units::Nanos};

/// How the calls of a function are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dose {
    /// The delay of each trigger; 0 only counts calls.
    pub delay: Nanos,
    /// The number of calls per trigger, at least 1.
    pub frequency: u64,
}

/// A caller and a function that it calls, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The calling function.
    pub caller: u32,
    /// The called function.
    pub callee: u32,
    /// The times of these calls.
    pub times: PairTimes,
}

/// A function that gets each pair of caller and callee, in no particular order.
pub type TakePair<'a> = dyn FnMut(Pair) + 'a;

/// A dose, with the number by which functions refer to it.
pub type NumberedDose = (u32, Dose);

/// Sets the doses, and which function has which dose. Functions have numbers from 0 on.
pub trait Policies: Debug + Send {
    /// Checks whether the engine can have these doses, in addition to the doses that it has.
    ///
    /// # Errors
    /// The engine cannot have these doses, for this reason.
    fn check(&self, doses: &[NumberedDose]) -> Result<(), SetError>;

    /// Prepares to set these doses. If they change the delay of a signal, the engine stops delaying calls
    /// with the former doses now. Wait for the returned signals before you set the doses.
    /// # Errors
    /// See [`check`](Self::check). Nothing has changed.
    fn pause(&mut self, doses: &[NumberedDose]) -> Result<UnderWay, SetError> {
        self.check(doses).map(|()| UnderWay::default())
    }

    /// Sets doses. All of them take effect at the same time if the engine supports that. They apply to every
    /// call that starts at the returned time or later. If a number occurs twice, the later dose counts.
    /// # Errors
    /// See [`check`](Self::check); nothing has changed then. Other errors if the engine fails to apply the
    /// doses.
    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError>;

    /// Gives a function the dose with this number. `None`: the function no longer exists.
    fn assign(&mut self, function: u32, number: Option<u32>);

    /// Bounds the delays of each thread, from the next call on.
    ///
    /// # Errors
    /// The engine cannot bound delays.
    fn set_bound(&mut self, _bound: DelayBound) -> Result<(), SetError> {
        let why = "the kernel module cannot keep to a bound on the delays of a thread: use the engine `bpf`";
        Err(SetError::Unfit(why.to_owned()))
    }

    /// Which engine spins a delay of this length.
    fn spins(&self, delay: Nanos) -> EngineKind;
}

/// A function that gets each function and its histogram. There may be many histograms, and each is long.
pub type TakeHistogram<'a> = dyn FnMut(u32, Histogram) + 'a;

/// Reads the counts of each function since the session began.
pub trait Counters: Debug + Send {
    /// The counters of `count` functions from `first` on, in order.
    ///
    /// # Errors
    /// The counters cannot be read, or are beyond the capacity.
    fn read(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>>;

    /// Calls `take` with the histograms of delays for `count` functions from `first` on. Not all functions
    /// have one.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    fn histograms(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()>;

    /// The times of `count` functions from `first` on, in order; `None` for functions that the engine does
    /// not time. Empty if it times no function.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    fn times(&self, _first: u32, _count: u32) -> io::Result<Vec<Option<FunctionTimes>>> {
        Ok(Vec::new())
    }

    /// Calls `take` with the callers of `count` functions from `first` on, in no particular order. Does
    /// nothing if the engine does not record callers.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    fn callers(&self, _first: u32, _count: u32, _take: &mut TakePair<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The thread pointer of the thread that last called a function; `None` if unknown.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    fn last_caller(&self, _function: u32) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Resets the counters of a removed function.
    ///
    /// # Errors
    /// We cannot write the counters.
    fn clear(&mut self, function: u32) -> io::Result<()>;
}

/// An engine, as a session uses it.
pub trait Engine: Policies + Counters {}

impl<T: Policies + Counters> Engine for T {}

/// Why doses cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The machine or the process does not allow these doses.
    #[error("{0}")]
    Unfit(String),
    /// The BPF object refuses these doses.
    #[error(transparent)]
    Bpf(#[from] EngineError),
    /// The kernel module refuses these doses.
    #[error(transparent)]
    Kmod(#[from] KmodError),
}
