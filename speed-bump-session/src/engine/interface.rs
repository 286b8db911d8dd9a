//! What a session and its engine say to each other: policies down, counters up.

use std::{fmt::Debug, io};

use speed_bump_abi::{FunctionStats, Histogram, callers::PairTimes, times::FunctionTimes};

use super::{EngineKind, bpf::EngineError, kmod::KmodError, signal::UnderWay};
use crate::units::Nanos;

/// What happens to the matching calls of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dose {
    /// Spin per trigger; 0 counts calls and delays none.
    pub delay: Nanos,
    /// Every how many matching calls is a trigger; at least 1.
    pub frequency: u64,
}

/// A function that calls another one, both by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The one that calls.
    pub caller: u32,
    /// The one that is called.
    pub callee: u32,
    /// What was summed up of these calls.
    pub times: PairTimes,
}

/// Called with each pair of caller and callee, in no order.
pub type TakePair<'a> = dyn FnMut(Pair) + 'a;

/// A dose, and the number by which functions follow it.
pub type NumberedDose = (u32, Dose);

/// Policies down: which doses there are, and which function follows which. Functions are numbered from 0 on.
pub trait Policies: Debug + Send {
    /// Looks whether these doses can be had, beside those that were set before.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, doses: &[NumberedDose]) -> Result<(), SetError>;

    /// Makes ready for these doses: where they change what a signal stands for, calls with the doses before
    /// are not delayed from here on. What is returned has to be waited for, and then they can be set.
    ///
    /// # Errors
    /// As [`check`](Self::check); nothing has changed then.
    fn pause(&mut self, doses: &[NumberedDose]) -> Result<UnderWay, SetError> {
        self.check(doses).map(|()| UnderWay::default())
    }

    /// Sets doses, which come into force together where the engine can do that. Every call that begins at the
    /// time that is returned, or later, has them; of two with the same number the last counts.
    ///
    /// # Errors
    /// As [`check`](Self::check); nothing has changed then. Other errors, where the engine does not do as it
    /// is told.
    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError>;

    /// Has a function follow the dose with this number. `None`: it is none any more.
    fn assign(&mut self, function: u32, number: Option<u32>);

    /// Who spins a delay of this length.
    fn spins(&self, delay: Nanos) -> EngineKind;
}

/// Takes the histogram of a function. There may be many, and each is long.
pub type TakeHistogram<'a> = dyn FnMut(u32, Histogram) + 'a;

/// Counters up: what was counted of each function since the session began.
pub trait Counters: Debug + Send {
    /// The counters of so many functions from this one on, in their order.
    ///
    /// # Errors
    /// They cannot be read, or are beyond what there is room for.
    fn read(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>>;

    /// Hands out how long calls were delayed, for each of so many functions from this one on of which that is
    /// known.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn histograms(&self, first: u32, count: u32, take: &mut TakeHistogram<'_>) -> io::Result<()>;

    /// The times of so many functions from this one on, in their order; `None` of those that are not timed.
    /// Nothing at all where none is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn times(&self, _first: u32, _count: u32) -> io::Result<Vec<Option<FunctionTimes>>> {
        Ok(Vec::new())
    }

    /// Hands out who calls the functions of so many from this one on, by the same numbers, in no order;
    /// nothing where that is not recorded.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn callers(&self, _first: u32, _count: u32, _take: &mut TakePair<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The thread pointer of the thread that called a function last; `None` where that is not known.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn last_caller(&self, _function: u32) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Sets the counters of a function to zero that is none any more.
    ///
    /// # Errors
    /// They cannot be written.
    fn clear(&mut self, function: u32) -> io::Result<()>;
}

/// An engine, as a session sees it.
pub trait Engine: Policies + Counters {}

impl<T: Policies + Counters> Engine for T {}

/// Why doses cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// They cannot be had here.
    #[error("{0}")]
    Unfit(String),
    /// The BPF object does not take them.
    #[error(transparent)]
    Bpf(#[from] EngineError),
    /// The kernel module does not take them.
    #[error(transparent)]
    Kmod(#[from] KmodError),
}
