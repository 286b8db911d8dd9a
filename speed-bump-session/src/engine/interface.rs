//! The interface between a session and its engine: policies down, counters up.

use std::{fmt::Debug, io};

use speed_bump_abi::{FunctionStats, Histogram, callers::PairTimes, times::FunctionTimes};

use super::{EngineKind, bpf::EngineError, kmod::KmodError, signal::UnderWay};
use crate::{policy::DelayBound, units::Nanos};

/// How a target's matching calls are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dose {
    /// The delay of each trigger; 0 only counts calls.
    pub delay: Nanos,
    /// Every how many matching calls one is a trigger; at least 1.
    pub frequency: u64,
}

/// A caller and a function that it calls, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The one that calls.
    pub caller: u32,
    /// The one that is called.
    pub callee: u32,
    /// The sums over these calls.
    pub times: PairTimes,
}

/// Called with each pair of caller and callee, in no order.
pub type TakePair<'a> = dyn FnMut(Pair) + 'a;

/// A dose, with the number by which functions refer to it.
pub type NumberedDose = (u32, Dose);

/// Policies down: the doses, and which function has which dose. Functions are numbered from 0 on.
pub trait Policies: Debug + Send {
    /// Checks whether these doses are possible, beside those that were set before.
    ///
    /// # Errors
    /// The reason why they are not.
    fn check(&self, doses: &[NumberedDose]) -> Result<(), SetError>;

    /// Prepares for these doses. If they change a signal's meaning, calls with the former doses are not
    /// delayed from here on; wait for the returned signals before you set the doses.
    /// # Errors
    /// As [`check`](Self::check); nothing has changed then.
    fn pause(&mut self, doses: &[NumberedDose]) -> Result<UnderWay, SetError> {
        self.check(doses).map(|()| UnderWay::default())
    }

    /// Sets doses. They take effect at the same time if the engine supports that. Every call that starts at
    /// the returned time or later has them. If a number occurs twice, the later dose counts.
    /// # Errors
    /// As [`check`](Self::check); nothing has changed then. Other errors if the engine fails to apply them.
    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError>;

    /// Gives a function the dose with this number. `None`: the function no longer exists.
    fn assign(&mut self, function: u32, number: Option<u32>);

    /// Bounds what each thread is delayed, from the next call on.
    ///
    /// # Errors
    /// The engine cannot keep to a bound.
    fn set_bound(&mut self, _bound: DelayBound) -> Result<(), SetError> {
        let why = "the kernel module cannot keep to a bound on the delays of a thread: use the engine `bpf`";
        Err(SetError::Unfit(why.to_owned()))
    }

    /// Which engine spins a delay of this length.
    fn spins(&self, delay: Nanos) -> EngineKind;
}

/// Takes the histogram of a function. There may be many, and each is long.
pub type TakeHistogram<'a> = dyn FnMut(u32, Histogram) + 'a;

/// Counters up: the counts of each function since the session began.
pub trait Counters: Debug + Send {
    /// The counters of `count` functions from `first` on, in order.
    ///
    /// # Errors
    /// They cannot be read, or are beyond the capacity.
    fn read(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>>;

    /// Passes on the histograms of delays for `count` functions from `first`, where known.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn histograms(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()>;

    /// The times of `count` functions from `first` on, in order; `None` for those that are not timed. Empty
    /// if none is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn times(&self, _first: u32, _count: u32) -> io::Result<Vec<Option<FunctionTimes>>> {
        Ok(Vec::new())
    }

    /// Passes on the callers of `count` functions from `first` on, by function number and in no order.
    /// Nothing if callers are not recorded.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn callers(&self, _first: u32, _count: u32, _take: &mut TakePair<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The thread pointer of the thread that last called a function; `None` if unknown.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn last_caller(&self, _function: u32) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Resets the counters of a removed function.
    ///
    /// # Errors
    /// They cannot be written.
    fn clear(&mut self, function: u32) -> io::Result<()>;
}

/// An engine, from a session's side.
pub trait Engine: Policies + Counters {}

impl<T: Policies + Counters> Engine for T {}

/// Why doses cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The machine or the process does not allow them.
    #[error("{0}")]
    Unfit(String),
    /// The BPF object refuses them.
    #[error(transparent)]
    Bpf(#[from] EngineError),
    /// The kernel module refuses them.
    #[error(transparent)]
    Kmod(#[from] KmodError),
}
