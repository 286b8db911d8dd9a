//! The engine `bpf`: spin until a time, inside the program.
//!
//! `bpf_loop` (kernel 5.17) calls back at most 2^23 times, about 0.2 s of clock readings; an outer loop
//! around it reaches the longest delay. Older kernels take loops that they can walk through to the end before they load the
//! program: those reach what the program spins of a delay that the helper is signalled for, and no more.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_loop};

use crate::maps::CONTROL;

/// How a program spins.
pub trait Spin {
    /// Spins until `deadline_ns`, or until the loader stops the session; returns the time when it ended.
    fn until(deadline_ns: u64, now_ns: u64) -> u64;
}

/// As long as is asked for.
pub struct Looping;

/// For [`Policy::PROGRAMS_SHARE_NS`](speed_bump_abi::Policy::PROGRAMS_SHARE_NS) at least, wherever a clock reading takes 7 ns or more.
pub struct Bounded;

impl Spin for Bounded {
    #[inline(always)]
    fn until(deadline_ns: u64, now_ns: u64) -> u64 {
        let mut now_ns = now_ns;
        for _ in 0..READINGS {
            if now_ns >= deadline_ns {
                break;
            }
            // SAFETY: the helper has no preconditions.
            now_ns = unsafe { bpf_ktime_get_ns() };
        }
        now_ns
    }
}

/// Readings of the clock in a bounded spin.
const READINGS: u32 = 4096;

/// The most iterations that `bpf_loop` accepts (`BPF_MAX_LOOPS`, kernel/bpf/bpf_iter.c).
const INNER: u32 = 1 << 23;
/// Enough inner loops for 10 s even where a clock reading takes only 5 ns.
const OUTER: u32 = 256;

struct Times {
    deadline_ns: u64,
    now_ns: u64,
}

impl Spin for Looping {
    #[inline(always)]
    fn until(deadline_ns: u64, now_ns: u64) -> u64 {
        let mut times = Times { deadline_ns, now_ns };
        // SAFETY: the callback matches what `bpf_loop` calls, and `times` outlives the call.
        unsafe { bpf_loop(OUTER, outer as *mut c_void, (&raw mut times).cast(), 0) };
        times.now_ns
    }
}

unsafe extern "C" fn outer(_index: u64, context: *mut c_void) -> i64 {
    // SAFETY: `bpf_loop` hands on the context that `until` gave it.
    unsafe {
        bpf_loop(INNER, inner as *mut c_void, context, 0);
        let spin = context.cast::<Times>();
        ((*spin).now_ns >= (*spin).deadline_ns) as i64
    }
}

unsafe extern "C" fn inner(_index: u64, context: *mut c_void) -> i64 {
    // SAFETY: as above.
    unsafe {
        let spin = context.cast::<Times>();
        let now = bpf_ktime_get_ns();
        (*spin).now_ns = now;
        if now >= (*spin).deadline_ns {
            return 1;
        }
        if let Some(control) = CONTROL.get_ptr(0)
            && (&raw const (*control).stop).read_volatile() != 0
        {
            (*spin).deadline_ns = 0;
            return 1;
        }
        0
    }
}
