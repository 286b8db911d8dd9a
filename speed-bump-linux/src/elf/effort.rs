//! Bounds the time spent on reading files that targets choose, over all files.
//!
//! For one file, we bound how much we read. But a process can map 65,000 files, and each can take as long as
//! allowed. So code that reads many files uses one [`Effort`] for all of them. An `Effort` has half a minute
//! at first. Later it also gets a twentieth of the time that passes. That is enough for the files of any
//! program, and for the children of a session that lasts for days.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The reading time at the beginning. The files of a program with PyTorch take seconds.
const AT_ONCE: Duration = Duration::from_secs(30);
/// Later, an `Effort` gets the time that passes, divided by this number.
const PART: u32 = 20;
/// The most bytes of debug files for which we compute checksums, over all files. This takes some seconds.
/// Files with a build id need no checksum.
const CHECKED_LIMIT: u64 = 4 << 30;

/// A limit of time and bytes for reading files of targets. Clones share it.
#[derive(Clone, Debug)]
pub struct Effort(Arc<Made>);

struct Made {
    began: Instant,
    at_once: Duration,
    spent: Mutex<Duration>,
    /// The bytes that are left for checksums.
    unchecked: AtomicU64,
    is_over: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("spent", &self.spent).field("unchecked", &self.unchecked).finish()
    }
}

/// Why we stop reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// The session ends.
    #[error("it is not read: the session ends")]
    Over,
    /// The time is up.
    #[error(
        "it is not read: to read the files before it has taken {} s, the most that a user should wait; name \
         fewer files in the targets",
        .0.as_secs()
    )]
    Time(Duration),
    /// There are no bytes left for checksums.
    #[error(
        "its checksum is not made: those of the debug files before it leave too little of the {} GiB that \
         are read for checksums; its symbols are not used (debug files with a build id need no checksum)",
        CHECKED_LIMIT >> 30
    )]
    Checksums,
}

impl Default for Effort {
    fn default() -> Self {
        Self::new(AT_ONCE, CHECKED_LIMIT)
    }
}

impl Effort {
    /// The default limit of time, and `bytes` for checksums.
    #[cfg(test)]
    pub(super) fn of_checksums(bytes: u64) -> Self {
        Self::new(AT_ONCE, bytes)
    }

    fn new(at_once: Duration, checked: u64) -> Self {
        Self(Arc::new(Made {
            began: Instant::now(),
            at_once,
            spent: Mutex::default(),
            unchecked: AtomicU64::new(checked),
            is_over: OnceLock::new(),
        }))
    }

    /// Makes all reading stop when `is_over` returns true. Only the first call has an effect.
    pub fn ends_when(&self, is_over: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.0.is_over.set(Box::new(is_over));
    }

    /// Reads one file, and counts the time for this. Do not nest calls: the time of the inner call would
    /// count twice.
    ///
    /// # Errors
    /// There is no time left.
    pub fn read<T>(&self, read: impl FnOnce() -> T) -> Result<T, Exhausted> {
        self.goes_on()?;
        let spent = *self.spent();
        if spent > self.0.at_once + self.0.began.elapsed() / PART {
            return Err(Exhausted::Time(spent));
        }
        let began = Instant::now();
        let result = read();
        *self.spent() += began.elapsed();
        Ok(result)
    }

    /// Checks that reading may go on.
    ///
    /// # Errors
    /// There is no time left, or the session ends.
    pub fn goes_on(&self) -> Result<(), Exhausted> {
        let is_over = self.0.is_over.get().is_some_and(|is_over| is_over());
        if is_over { Err(Exhausted::Over) } else { Ok(()) }
    }

    /// Takes bytes from the bytes that are left for checksums.
    pub(super) fn take_checked(&self, bytes: u64) -> Result<(), Exhausted> {
        let less = |left: u64| left.checked_sub(bytes);
        let taken = self.0.unchecked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.map(drop).map_err(|_| Exhausted::Checksums)
    }

    fn spent(&self) -> std::sync::MutexGuard<'_, Duration> {
        self.0.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn nothing_is_read_once_the_time_is_up() {
        let effort = Effort::new(Duration::ZERO, 0);
        let read = |time: Duration| effort.read(|| thread::sleep(time));
        assert_eq!(read(Duration::from_millis(20)), Ok(()));
        let error = effort.clone().read(|| ()).unwrap_err();
        assert!(matches!(error, Exhausted::Time(spent) if spent >= Duration::from_millis(20)), "{error:?}");
        assert!(error.to_string().contains("name fewer files"), "{error}");
        // A twentieth of the time that passes becomes available.
        while effort.read(|| ()).is_err() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn checksums_of_all_files_are_made_of_so_many_bytes() {
        let effort = Effort::new(AT_ONCE, 10);
        assert_eq!(effort.take_checked(7), Ok(()));
        assert_eq!(effort.take_checked(4), Err(Exhausted::Checksums));
        assert_eq!(effort.take_checked(3), Ok(()));
        assert_eq!(effort.take_checked(1), Err(Exhausted::Checksums));
    }

    #[test]
    fn nothing_is_read_once_it_is_over() {
        let (effort, over) = (Effort::default(), Arc::new(AtomicBool::new(false)));
        let asks = Arc::clone(&over);
        effort.ends_when(move || asks.load(Ordering::SeqCst));
        assert_eq!(effort.read(|| 5), Ok(5));
        over.store(true, Ordering::SeqCst);
        assert_eq!((effort.read(|| 5), effort.goes_on()), (Err(Exhausted::Over), Err(Exhausted::Over)));
    }
}
