//! How long each delay really was: one more counter, where there has been a delay.
//!
//! A function takes a histogram on the CPU where it is delayed for the first time. When there are none left,
//! or an older kernel does not tell which comes next, its delays there are in the sums alone.

use core::hint::black_box;

use speed_bump_abi::{FunctionStats, Histogram};

use crate::{
    count::{add, next},
    maps::{HISTOGRAMS, HISTOGRAMS_TAKEN},
};

/// Counts a delay in the histogram of its function. `has_spun`: whether there was a spin that may have been
/// interrupted. It is a function of its own in BPF too, so that the object contains it only once.
#[inline(never)]
pub fn count(stats: *mut FunctionStats, delay_ns: u64, delivered_ns: u64, has_spun: bool) {
    let Some(histogram) = histogram(stats) else { return };
    // The compiler knows the range of the result, and would drop the comparison that the verifier needs.
    let position = black_box(Histogram::position(delivered_ns, delay_ns));
    if position >= Histogram::WORDS {
        return;
    }
    // SAFETY: `histogram` points to a live map value, and both are positions in it.
    unsafe {
        add(&raw mut (*histogram).words[position], 1);
        if has_spun && delivered_ns > delay_ns + Histogram::interrupted_above_ns(delay_ns) {
            add(&raw mut (*histogram).words[Histogram::INTERRUPTED], 1);
        }
    }
}

/// The function's histogram on this CPU. A task that preempts this one may take another histogram for the
/// same function. Then one delay is in a histogram that nobody reads.
#[inline(always)]
fn histogram(stats: *mut FunctionStats) -> Option<*mut Histogram> {
    // SAFETY: `stats` points to a live map value.
    let mut number = unsafe { (&raw const (*stats).histogram).read_volatile() };
    if number == 0 {
        let taken = next(HISTOGRAMS_TAKEN.get_ptr_mut(0)?);
        // We also remember a number that has no histogram, so that not each call asks for one.
        number = taken.min(u64::from(u32::MAX - 1)) as u32 + 1;
        // SAFETY: as above.
        unsafe { (&raw mut (*stats).histogram).write_volatile(number) };
    }
    HISTOGRAMS.get_ptr_mut(number - 1)
}
