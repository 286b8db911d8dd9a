//! The engine `bpf`: spin until a time, inside the program.
//!
//! `bpf_loop` (kernel 5.17) calls back at most 2^23 times, about 0.2 s of clock readings; an outer loop
//! around it reaches the longest delay.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_loop};

use crate::maps::CONTROL;

/// The most iterations that `bpf_loop` accepts (`BPF_MAX_LOOPS`, kernel/bpf/bpf_iter.c).
const INNER: u32 = 1 << 23;
/// Enough inner loops for 10 s even where a clock reading takes only 5 ns.
const OUTER: u32 = 256;

struct Spin {
    deadline_ns: u64,
    now_ns: u64,
}

/// Spins until `deadline_ns`, or until the loader stops the session; returns the time when it ended.
#[inline(always)]
pub fn until(deadline_ns: u64, now_ns: u64) -> u64 {
    let mut spin = Spin { deadline_ns, now_ns };
    // SAFETY: the callback matches what `bpf_loop` calls, and `spin` outlives the call.
    unsafe { bpf_loop(OUTER, outer as *mut c_void, (&raw mut spin).cast(), 0) };
    spin.now_ns
}

unsafe extern "C" fn outer(_index: u64, context: *mut c_void) -> i64 {
    // SAFETY: `bpf_loop` hands on the context that `until` gave it.
    unsafe {
        bpf_loop(INNER, inner as *mut c_void, context, 0);
        let spin = context.cast::<Spin>();
        ((*spin).now_ns >= (*spin).deadline_ns) as i64
    }
}

unsafe extern "C" fn inner(_index: u64, context: *mut c_void) -> i64 {
    // SAFETY: as above.
    unsafe {
        let spin = context.cast::<Spin>();
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
