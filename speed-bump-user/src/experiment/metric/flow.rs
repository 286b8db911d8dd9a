//! Units that begin with a call of one function and end with a call of another, as in a queue between two
//! threads.
//!
//! By Little's law, the mean time of a unit is the integral of the number in progress over time, divided by
//! the number of units that ended. The number in progress is calls of the first function minus calls of the
//! second. A thread reads both about every millisecond, at irregular times, and assumes that the number stays
//! the same until the next reading. The mean includes units that begin and end between two readings, in
//! proportion to their length. With 200 readings in a slice the mean is off by some per cent either way, like
//! any noise.
//!
//! The number in progress when counting began is unknown: the smallest number that was read counts as zero.
//! So in a service that always has units in progress, the times are too short.

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
    calls::{calls_of_target, place},
    level::Level,
};
use crate::{
    experiment::record::By,
    session::{controls::Controls, snapshot::Snapshot},
    sys::priority,
    targets::TargetIndex,
    units::Nanos,
};

/// The time between two readings, in us. It varies, so that it cannot be in step with a periodic service.
const PAUSE_US: std::ops::Range<u64> = 500..1_500;

/// A metric of units between two functions.
#[derive(Debug)]
pub(crate) struct Flow {
    /// The numbers of the beginning's and the end's target among the targets of metrics.
    numbers: [TargetIndex; 2],
    /// The number in the session of the target whose calls begin units.
    begin: TargetIndex,
    /// The number in the session of the target whose calls end units.
    end: TargetIndex,
    readings: Option<Readings>,
}

impl Flow {
    /// Units from calls of one target to calls of another.
    pub(crate) fn new(begin: TargetIndex, end: TargetIndex) -> Self {
        Self { numbers: [begin, end], begin, end, readings: None }
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
        self.readings = None;
        [self.begin, self.end] = self.numbers.map(|number| place(places, number));
        self.readings = Some(Readings::start(session.clone(), self.begin, self.end)?);
        Ok(())
    }

    fn read(&mut self, snapshot: &Snapshot) -> io::Result<Reading> {
        let readings = self.readings.as_ref().ok_or_else(|| io::Error::other("no session has begun"))?;
        let mut seen = readings.seen();
        if let Some(error) = seen.error.take() {
            return Err(error);
        }
        seen.add(snapshot, self.begin, self.end);
        let latency = seen.level.until(snapshot.at);
        let units = calls_of_target(snapshot, self.end).units;
        Ok(Reading { units, latency: Some(latency), ..Reading::default() })
    }
}

/// A thread that reads the counters while this lives.
#[derive(Debug)]
struct Readings {
    seen: Arc<Mutex<Seen>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Readings {
    fn start(session: Controls, begin: TargetIndex, end: TargetIndex) -> io::Result<Self> {
        let (seen, ends) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicBool::new(false)));
        let (sees, is_over) = (Arc::clone(&seen), Arc::clone(&ends));
        let read = move || {
            // A late reading would count an old number as the present one for too long.
            if let Err(error) = priority::urgent() {
                tracing::debug!("the thread that reads units in progress has ordinary priority: {error}");
            }
            // Any seed will do.
            let mut random = Pcg64Mcg::seed_from_u64(1);
            while !is_over.load(Ordering::SeqCst) {
                let snapshot = session.snapshot();
                let mut seen = lock(&sees);
                match snapshot {
                    Ok(snapshot) => seen.add(&snapshot, begin, end),
                    Err(error) => {
                        seen.error = Some(error);
                        return;
                    }
                }
                drop(seen);
                thread::sleep(Duration::from_micros(random.random_range(PAUSE_US)));
            }
        };
        let thread = thread::Builder::new().name("flow".to_owned()).spawn(read)?;
        Ok(Self { seen, ends, thread: Some(thread) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // The state consists of numbers, and is consistent even if a thread panicked.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the readings so far.
#[derive(Debug, Default)]
struct Seen {
    level: Level,
    /// The smallest difference that was read: calls of the first function minus calls of the second.
    least: Option<f64>,
    last: Nanos,
    error: Option<io::Error>,
}

impl Seen {
    fn add(&mut self, snapshot: &Snapshot, begin: TargetIndex, end: TargetIndex) {
        let of = |target| calls_of_target(snapshot, target).units;
        self.take(snapshot.at, of(begin) - of(end));
    }

    /// Adds the number in progress, without units from before counting began. Readings of two threads may
    /// arrive out of order.
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
    fn the_smallest_number_counts_as_zero() {
        let mut seen = Seen::default();
        // One unit was in progress when counting began.
        seen.take(Nanos(0), 0.0);
        seen.take(Nanos(10), -1.0);
        seen.take(Nanos(20), 1.0);
        // A reading of another thread that arrives late.
        seen.take(Nanos(15), 7.0);
        seen.take(Nanos(30), -1.0);
        assert_eq!(seen.level.until(Nanos(40)), 20.0);
    }
}
