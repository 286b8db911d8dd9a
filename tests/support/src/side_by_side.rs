//! Cases that run side by side within one test: most of them wait for another process most of the time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Runs the case on each of these, as many at a time as there are processors. Panics if a case does; a case
/// that had not started then may not run.
pub fn on_each<T: Sync>(of: &[T], case: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(one) = of.get(next.fetch_add(1, Ordering::Relaxed)) {
            case(one);
        }
    };
    // By its thread's name a test is known to those who skip something in it.
    let name = thread::current().name().unwrap_or("test").to_owned();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(of.len());
    thread::scope(|scope| {
        let start = || thread::Builder::new().name(name.clone()).spawn_scoped(scope, work);
        let started: Vec<_> = (0..workers).map(|_| start()).collect();
        if started.iter().all(Result::is_err) {
            work();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_runs_once() {
        let ran = Mutex::new(Vec::new());
        let all: Vec<u32> = (0..100).collect();
        on_each(&all, |number| ran.lock().unwrap_or_else(|poison| poison.into_inner()).push(*number));
        let mut ran = ran.into_inner().unwrap_or_default();
        ran.sort_unstable();
        assert_eq!(ran, all);
        on_each(&[(); 0], |()| unreachable!());
    }

    #[test]
    #[should_panic(expected = "scoped thread panicked")]
    fn one_that_fails_fails_all() {
        on_each(&[1, 2, 3], |number| assert_ne!(*number, 2));
    }

    #[test]
    fn the_threads_are_named_as_the_test() {
        let own = thread::current().name().map(str::to_owned);
        on_each(&[1, 2], |_| assert_eq!(thread::current().name(), own.as_deref()));
    }
}
