//! How long files are read that targets choose, in all of them together.
//!
//! What is read of one file is bounded, but not how many files there are: a process can map 65,000, each made
//! to take as long as it may. So whoever reads such files one after the other does it through one [`Effort`].
//! It has half a minute to begin with, and a twentieth of the time that follows: enough for the files of any
//! program, and for the children of a session that lasts for days.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long may be read at once. The files of a program with PyTorch take seconds.
const AT_ONCE: Duration = Duration::from_secs(30);
/// Of the time that goes on, one part in so many.
const PART: u32 = 20;
/// Bytes of debug files of which checksums are made, in all: seconds. What has a build id needs none.
const CHECKED_LIMIT: u64 = 4 << 30;

/// The effort that is made for the files of targets. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Effort(Arc<Made>);

struct Made {
    began: Instant,
    at_once: Duration,
    spent: Mutex<Duration>,
    /// Bytes that may yet be read for checksums.
    unchecked: AtomicU64,
    is_over: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Made").field("spent", &self.spent).field("unchecked", &self.unchecked).finish()
    }
}

/// Why no more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// Whoever wanted to know has ended.
    #[error("it is not read any more: the session ends")]
    Over,
    /// The time is up.
    #[error(
        "it is not read: to read the files before it has taken {} s, and nobody is to wait for longer; name \
         fewer files in the targets",
        .0.as_secs()
    )]
    Time(Duration),
    /// Checksums are made of no more.
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
    /// As the default, with so many bytes for checksums.
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

    /// Nothing is read any more once this says so. The first of several is kept.
    pub fn ends_when(&self, is_over: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.0.is_over.set(Box::new(is_over));
    }

    /// Reads one file, and counts how long that takes. What is read within that is not to be counted again.
    ///
    /// # Errors
    /// There is no time left for it.
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

    /// That it is not over.
    ///
    /// # Errors
    /// It is.
    pub fn goes_on(&self) -> Result<(), Exhausted> {
        let is_over = self.0.is_over.get().is_some_and(|is_over| is_over());
        if is_over { Err(Exhausted::Over) } else { Ok(()) }
    }

    /// Takes so many bytes of what may be read for checksums.
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
        // A twentieth of the time that goes on.
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
