//! Units that begin with a call of one function and end with a call of another, as in a queue between two
//! threads.
//!
//! By Little's law, a unit takes as long on average as the integral of those under way over the time, over
//! those that ended. Only calls are counted, so those under way are calls of the one less calls of the other;
//! a thread looks at both each millisecond or so, at times that are not regular, and takes what it sees to
//! hold until the next look. What comes and goes between two looks is in the mean all the same, as often as
//! it is long; in a slice of 200 looks it is off by some per cent either way, like any noise.
//!
//! What was under way when counting began is not known: the least that was seen is taken for none. In a
//! service that is never without work, units are too short by as much as there always is.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{
    Metric, Reading,
    calls::{of_target, place},
    level::Level,
};
use crate::{
    experiment::record::By,
    session::{controls::Controls, snapshot::Snapshot},
    sys::priority,
    targets::TargetIndex,
    units::Nanos,
};

/// The times between two looks, in us. A service with a beat of its own must not be looked at in step.
const LOOKS_US: std::ops::Range<u64> = 500..1_500;

/// See above.
#[derive(Debug)]
pub(crate) struct Flow {
    /// The targets, as the sweep numbers those of metrics.
    numbers: [TargetIndex; 2],
    /// The same, as the session does.
    begin: TargetIndex,
    end: TargetIndex,
    looks: Option<Looks>,
}

impl Flow {
    /// From calls of one target to calls of another.
    pub(crate) fn new(begin: TargetIndex, end: TargetIndex) -> Self {
        Self { numbers: [begin, end], begin, end, looks: None }
    }
}

impl Metric for Flow {
    fn unit(&self) -> Option<&'static str> {
        Some("call")
    }

    fn by(&self) -> By {
        By::Latency
    }

    fn target(&self) -> Option<TargetIndex> {
        Some(self.end)
    }

    fn begin(&mut self, session: &Controls, places: &[TargetIndex]) -> io::Result<()> {
        self.looks = None;
        [self.begin, self.end] = self.numbers.map(|number| place(places, number));
        self.looks = Some(Looks::at(session.clone(), self.begin, self.end)?);
        Ok(())
    }

    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading> {
        let looks = self.looks.as_ref().ok_or_else(|| io::Error::other("no session was begun"))?;
        let mut seen = looks.seen();
        if let Some(error) = seen.error.take() {
            return Err(error);
        }
        seen.look(snapshot, self.begin, self.end);
        let latency = seen.level.until(snapshot.at);
        let units = of_target(snapshot, self.end).units;
        Ok(Reading { units, latency: Some(latency), ..Reading::default() })
    }
}

/// A thread that looks, as long as this lives.
#[derive(Debug)]
struct Looks {
    seen: Arc<Mutex<Seen>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Looks {
    fn at(session: Controls, begin: TargetIndex, end: TargetIndex) -> io::Result<Self> {
        let (seen, ends) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let (sees, is_over) = (Arc::clone(&seen), Arc::clone(&ends));
        let look = move || {
            // Late looks take what was seen long before for what was under way.
            if let Err(error) = priority::urgent() {
                tracing::debug!("what is under way is looked at by an ordinary thread: {error}");
            }
            // Not a secret: any seed is as irregular as another.
            let mut random = Pcg64Mcg::seed_from_u64(1);
            while !is_over.load(Ordering::SeqCst) {
                let snapshot = session.snapshot();
                let mut seen = lock(&sees);
                match snapshot {
                    Ok(snapshot) => seen.look(&snapshot, begin, end),
                    Err(error) => {
                        seen.error = Some(error);
                        return;
                    }
                }
                drop(seen);
                thread::sleep(Duration::from_micros(random.random_range(LOOKS_US)));
            }
        };
        let thread = thread::Builder::new().name("flow".to_owned()).spawn(look)?;
        Ok(Self { seen, ends, thread: Some(thread) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Numbers alone: they are as good as they were.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Seen {
    level: Level,
    /// Calls of the beginning less calls of the end, the least that there were.
    least: Option<f64>,
    last: Nanos,
    error: Option<io::Error>,
}

impl Seen {
    fn look(&mut self, snapshot: &Snapshot, begin: TargetIndex, end: TargetIndex) {
        let of = |target| of_target(snapshot, target).units;
        self.take(snapshot.at, of(begin) - of(end));
    }

    /// Takes what was under way then, but for what was before counting began. Looks of two threads may come
    /// in another order than they were made in.
    fn take(&mut self, at: Nanos, more: f64) {
        if at < self.last {
            return;
        }
        self.last = at;
        let least = self.least.map_or(more, |least| least.min(more));
        self.least = Some(least);
        self.level.step(at, more - least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_was_seen_is_none() {
        let mut seen = Seen::default();
        // One was under way when counting began.
        seen.take(Nanos(0), 0.0);
        seen.take(Nanos(10), -1.0);
        seen.take(Nanos(20), 1.0);
        // Of another thread, too late.
        seen.take(Nanos(15), 7.0);
        seen.take(Nanos(30), -1.0);
        assert_eq!(seen.level.until(Nanos(40)), 20.0);
    }
}
