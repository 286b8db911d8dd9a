//! How fast the machine's processors are: neighbours on the same cores, frequencies and heat change that for
//! seconds, and units of work take longer or less long then. Slices are compared with those of the same speed.

use std::hint::black_box;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::record::Slice;
use crate::sys::clock::now;

/// Steps of the loop that is timed: some 30 us.
const STEPS: u32 = 20_000;
/// So often on each processor, of which the fastest counts: it was not interrupted.
const TRIES: u32 = 3;
/// Processors that are looked at, at most.
const PROCESSORS: usize = 8;
/// Speeds differ from this factor on.
const ALIKE: f64 = 1.1;

/// How long a loop of arithmetic takes now, in ns, on the processors that this thread may use, one after the
/// other, in all. `None` where the thread cannot choose its processor.
pub fn loop_ns() -> Option<f64> {
    let own = sched_getaffinity(None).ok()?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).collect();
    let apart = all.len().div_ceil(PROCESSORS).max(1);
    let mut sum = 0.0;
    let mut is_known = true;
    for cpu in all.iter().step_by(apart) {
        let mut one = CpuSet::new();
        one.set(*cpu);
        is_known &= sched_setaffinity(None, &one).is_ok();
        sum += (0..TRIES).map(|_| timed()).fold(f64::INFINITY, f64::min);
    }
    sched_setaffinity(None, &own).ok()?;
    (is_known && sum.is_finite() && sum > 0.0).then_some(sum)
}

fn timed() -> f64 {
    let begun = now();
    let mut value: u64 = black_box(1);
    for step in 0..STEPS {
        // Each step waits for the one before.
        value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ u64::from(step);
    }
    black_box(value);
    now().0.saturating_sub(begun.0) as f64
}

/// Whether two loops took about the same time. What is not known does not differ.
pub fn is_alike(one: Option<f64>, other: Option<f64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.max(other) <= ALIKE * one.min(other),
        (None, _) | (_, None) => true,
    }
}

/// Whether the processors were as fast in one slice as in the other.
pub fn alike(one: &Slice, other: &Slice) -> bool {
    is_alike(one.loop_ns, other.loop_ns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_loop_takes_time_and_the_thread_may_go_where_it_could() {
        let before = sched_getaffinity(None).unwrap();
        assert!(loop_ns().unwrap() > 1_000.0);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn speeds_differ_by_a_factor() {
        assert!(is_alike(Some(100.0), Some(109.0)) && is_alike(Some(109.0), Some(100.0)));
        assert!(!is_alike(Some(100.0), Some(111.0)) && !is_alike(Some(111.0), Some(100.0)));
        assert!(is_alike(None, Some(1.0)) && is_alike(None, None));
    }
}
