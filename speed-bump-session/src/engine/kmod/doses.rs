//! The engine `kmod` as a session uses it: each function is a target of the module, with a delay.
//!
//! The module has a delay for each target. It counts the target's calls and the time that it spun. We compute
//! here how many calls were delayed, and the sum of the requested delays. The calls that the module counted
//! before a change had the former delay. Calls at the moment of the change may count on either side.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use speed_bump_abi::FunctionStats;

use super::{Counts, KmodEngine, KmodError, Left, TargetName};
use crate::{
    engine::{Counters, EngineKind, NumberedDose, Policies, SetError, TakeHistogram},
    sys::clock::now,
    units::Nanos,
};

/// One session's targets in the module. Clones share the session.
#[derive(Clone, Debug)]
pub(crate) struct KmodDoses(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    engine: KmodEngine,
    /// The delay of each dose, by the dose's number.
    doses: BTreeMap<u32, Nanos>,
    /// The functions, by number. A function's number is the position of its target.
    functions: Vec<Function>,
    /// Whether the window is open, so that calls are delayed.
    is_open: bool,
    /// The final counts, once the engine has removed the targets.
    last: Option<Vec<Option<Counts>>>,
}

/// A function, with the sums from its earlier delays.
#[derive(Clone, Copy, Debug, Default)]
struct Function {
    number: Option<u32>,
    /// The function's present delay in the module.
    delay: Nanos,
    /// How many calls had earlier delays.
    settled: u64,
    /// How many of these calls were delayed, and the sum of their delays.
    delayed: u64,
    requested: u64,
}

impl KmodDoses {
    /// Takes an engine without targets. The caller adds functions one after the other, each with a delay of
    /// 0.
    pub(crate) fn new(engine: KmodEngine) -> Self {
        let inner =
            Inner { engine, doses: BTreeMap::new(), functions: Vec::new(), is_open: false, last: None };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Adds the target of the next function.
    ///
    /// # Errors
    /// The module refuses the target. The next call of this method then adds the same function.
    pub(crate) fn add(&self, name: TargetName) -> Result<(), KmodError> {
        self.lock().engine.add(&[name])
    }

    /// Starts to delay calls.
    ///
    /// # Errors
    /// Some delays could not start.
    pub(crate) fn open(&self) -> Result<(), KmodError> {
        let mut inner = self.lock();
        inner.is_open = true;
        inner.apply()
    }

    /// Whether the module counts and delays.
    ///
    /// # Errors
    /// The module is gone.
    pub(crate) fn is_enabled(&self) -> Result<bool, KmodError> {
        self.lock().engine.is_enabled()
    }

    /// Removes the targets, and restores `enabled`. Returns the number of delays that ended early, and
    /// warnings.
    ///
    /// # Errors
    /// The module does not execute a command.
    pub(crate) fn leave(&self) -> Result<(u64, Vec<String>), KmodError> {
        let mut inner = self.lock();
        // We read the counts first, in case the module can no longer give them later.
        let before = inner.engine.counts();
        match inner.engine.leave() {
            Ok(Left { counts, warnings }) => {
                let interrupted = counts.iter().flatten().map(|counts| counts.interrupted).sum();
                inner.last = Some(counts);
                Ok((interrupted, warnings))
            }
            Err(error) => {
                inner.last = Some(before.unwrap_or_default());
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock is held leaves the data consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The delay that a function should have now.
    fn wanted(&self, function: &Function) -> Nanos {
        let dose = function.number.and_then(|number| self.doses.get(&number).copied());
        dose.filter(|_| self.is_open).unwrap_or_default()
    }

    /// Sets the delays in the module to what the doses say.
    fn apply(&mut self) -> Result<(), KmodError> {
        let changes: Vec<(usize, Nanos)> = self
            .functions
            .iter()
            .enumerate()
            .map(|(position, function)| (position, self.wanted(function)))
            .filter(|(position, delay)| self.functions.get(*position).is_some_and(|of| of.delay != *delay))
            .collect();
        if changes.is_empty() {
            return Ok(());
        }
        let counts = self.engine.counts()?;
        let mut applied = Ok(());
        for (position, delay) in changes {
            let hits = counts.get(position).copied().flatten().map_or(0, |counts| counts.hits);
            if let Some(function) = self.functions.get_mut(position) {
                function.settle(hits);
                function.delay = delay;
            }
            applied = applied.and(self.engine.set_delay(position, delay));
        }
        applied
    }
}

impl Function {
    /// Records that the calls so far had the present delay. `hits` is their number.
    fn settle(&mut self, hits: u64) {
        (self.delayed, self.requested) = self.delayed_of(hits);
        self.settled = hits.max(self.settled);
    }

    /// How many of these calls were delayed, and the sum of their delays.
    fn delayed_of(&self, hits: u64) -> (u64, u64) {
        let new = if self.delay > Nanos(0) { hits.saturating_sub(self.settled) } else { 0 };
        let requested = self.requested.saturating_add(new.saturating_mul(self.delay.0));
        (self.delayed.saturating_add(new), requested)
    }
}

impl Policies for KmodDoses {
    fn check(&self, doses: &[NumberedDose]) -> Result<(), SetError> {
        match doses.iter().find(|(_, dose)| dose.frequency > 1) {
            Some((_, dose)) => Err(SetError::Unfit(format!(
                "the kernel module (--engine kmod) cannot delay every call number {} alone, but only every \
                 call: use a frequency of 1, or --engine bpf",
                dose.frequency
            ))),
            None => Ok(()),
        }
    }

    fn set(&mut self, doses: &[NumberedDose]) -> Result<Nanos, SetError> {
        self.check(doses)?;
        let mut inner = self.lock();
        inner.doses.extend(doses.iter().map(|(number, dose)| (*number, dose.delay)));
        inner.apply()?;
        Ok(now())
    }

    fn assign(&mut self, function: u32, number: Option<u32>) {
        let mut inner = self.lock();
        let position = function as usize;
        if inner.functions.len() <= position {
            inner.functions.resize(position + 1, Function::default());
        }
        if let Some(function) = inner.functions.get_mut(position) {
            function.number = number;
        }
        if let Err(error) = inner.apply() {
            tracing::debug!("function {function} has no delay yet: {error}");
        }
    }

    fn spins(&self, _delay: Nanos) -> EngineKind {
        EngineKind::Kmod
    }
}

impl Counters for KmodDoses {
    fn read(&self, first: u32, count: u32) -> io::Result<Vec<FunctionStats>> {
        let inner = self.lock();
        let all = match &inner.last {
            Some(last) => last.clone(),
            None => inner.engine.counts().map_err(io::Error::other)?,
        };
        let stats = |position: usize| {
            let Some(function) = inner.functions.get(position) else { return FunctionStats::default() };
            let Counts { hits, injected, .. } = all.get(position).copied().flatten().unwrap_or_default();
            let (delayed, requested_ns) = function.delayed_of(hits);
            // Upstream's module does not measure how long it spins.
            let delivered_ns = if inner.engine.is_upstream() { requested_ns } else { injected.0 };
            FunctionStats { calls: hits, delayed, requested_ns, delivered_ns, ..FunctionStats::default() }
        };
        let first = first as usize;
        Ok((first..first.saturating_add(count as usize)).map(stats).collect())
    }

    fn histograms(&self, _first: u32, _count: u32, _take: &mut TakeHistogram<'_>) -> io::Result<()> {
        // The module only has sums, and no histograms.
        Ok(())
    }

    fn clear(&mut self, _function: u32) -> io::Result<()> {
        // Functions of the module never end before their session.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_under_the_delay_that_they_had() {
        let mut function = Function::default();
        assert_eq!(function.delayed_of(7), (0, 0), "no delay yet");
        function.settle(7);
        function.delay = Nanos(100);
        assert_eq!(function.delayed_of(10), (3, 300));
        function.settle(10);
        function.delay = Nanos(0);
        assert_eq!(function.delayed_of(50), (3, 300));
        function.settle(50);
        function.delay = Nanos(1_000);
        assert_eq!(function.delayed_of(52), (5, 2_300));
        assert_eq!(function.delayed_of(40), (3, 300), "the target was removed by somebody else");
    }
}
