//! The engine `bpf`: spin until a time, inside the program.
//!
//! `bpf_loop` (kernel 5.17) calls back at most 2^23 times, about 0.2 s of clock readings; an outer loop
//! around it reaches the longest delay. Older kernels accept only loops that they can walk through to the end
//! before they load the program. Such loops are long enough for the part that the program spins if it signals
//! the helper, and not for more.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated::bpf_loop};

use speed_bump_abi::Gaps;

use crate::{
    give_way::{Asked, may_sleep},
    maps::CONTROL,
};

/// How a program spins.
pub trait Spin {
    /// Whether the program may spin for a call if it could not signal the helper.
    const SPINS_AGAIN: bool;

    /// Spins until `deadline_ns`, or until the loader stops the session or has not renewed it; returns the
    /// time when it ended. Time in which the thread was kept from running may put the deadline off.
    fn until(deadline_ns: u64, now_ns: u64) -> u64;
}

/// Spins for as long as requested.
pub struct Looping;

/// Spins for [`Policy::PROGRAMS_SHARE_NS`](speed_bump_abi::Policy::PROGRAMS_SHARE_NS) or more, wherever a
/// clock reading takes 7 ns or more.
///
/// The verifier walks through each turn of a loop. So most of the time passes in turns of several readings,
/// and the length of the last turn shows when another one would be too long.
pub struct Bounded;

/// Turns of eight readings each, and of one.
const LONG_TURNS: u32 = 512;
const SHORT_TURNS: u32 = 128;
/// What is left to spin where turns of eight readings begin, in ns.
const LONG_NS: u64 = 1_000;

impl Spin for Bounded {
    const SPINS_AGAIN: bool = false;

    #[inline(always)]
    fn until(deadline_ns: u64, now_ns: u64) -> u64 {
        // SAFETY: the helper has no preconditions.
        let read = || unsafe { bpf_ktime_get_ns() };
        let mut now_ns = now_ns;
        if now_ns + LONG_NS < deadline_ns {
            for _ in 0..LONG_TURNS {
                let began_ns = now_ns;
                for _ in 0..7 {
                    read();
                }
                now_ns = read();
                if now_ns + (now_ns - began_ns) >= deadline_ns {
                    break;
                }
            }
        }
        for _ in 0..SHORT_TURNS {
            if now_ns >= deadline_ns {
                break;
            }
            now_ns = read();
        }
        now_ns
    }
}

/// The most iterations that `bpf_loop` accepts (`BPF_MAX_LOOPS`, kernel/bpf/bpf_iter.c).
const INNER: u32 = 1 << 23;
/// Enough inner loops for 10 s even where a clock reading takes only 5 ns.
const OUTER: u32 = 256;

struct Times {
    deadline_ns: u64,
    now_ns: u64,
    gaps: Gaps,
    asked: Asked,
}

impl Spin for Looping {
    const SPINS_AGAIN: bool = true;

    #[inline(always)]
    fn until(deadline_ns: u64, now_ns: u64) -> u64 {
        if may_sleep() { spin_giving_way(deadline_ns, now_ns) } else { spin_through(deadline_ns, now_ns) }
    }
}

/// A global function of the object: the verifier walks through it once, and not for each state in which it
/// is called.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn spin_through(deadline_ns: u64, now_ns: u64) -> u64 {
    spin::<false>(deadline_ns, now_ns)
}

/// [`spin_through`] in a program that may sleep. No other program may call a function that may sleep.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn spin_giving_way(deadline_ns: u64, now_ns: u64) -> u64 {
    spin::<true>(deadline_ns, now_ns)
}

#[inline(always)]
fn spin<const GIVES_WAY: bool>(deadline_ns: u64, now_ns: u64) -> u64 {
    let mut times = Times { deadline_ns, now_ns, gaps: Gaps::NEW, asked: Asked::NOTHING };
    // SAFETY: the callback matches what `bpf_loop` calls, and `times` outlives the call.
    unsafe { bpf_loop(OUTER, outer::<GIVES_WAY> as *mut c_void, (&raw mut times).cast(), 0) };
    times.now_ns
}

unsafe extern "C" fn outer<const GIVES_WAY: bool>(_index: u64, context: *mut c_void) -> i64 {
    // SAFETY: `bpf_loop` hands on the context that `until` gave it.
    unsafe {
        bpf_loop(INNER, inner::<GIVES_WAY> as *mut c_void, context, 0);
        let spin = context.cast::<Times>();
        ((*spin).now_ns >= (*spin).deadline_ns) as i64
    }
}

unsafe extern "C" fn inner<const GIVES_WAY: bool>(index: u64, context: *mut c_void) -> i64 {
    // SAFETY: as above.
    unsafe {
        let spin = context.cast::<Times>();
        let now = bpf_ktime_get_ns();
        let step_ns = now - (*spin).now_ns;
        (*spin).now_ns = now;
        if (*spin).gaps.is_gap(step_ns, Gaps::ALLOWANCE_NS) {
            (*spin).deadline_ns += step_ns;
        }
        if now >= (*spin).deadline_ns {
            return 1;
        }
        if let Some(control) = CONTROL.get_ptr(0)
            && ((&raw const (*control).stop).read_volatile() != 0
                || now >= (&raw const (*control).expires_ns).read_volatile())
        {
            (*spin).deadline_ns = 0;
            return 1;
        }
        if GIVES_WAY {
            (*spin).asked.give_way(index, (*spin).deadline_ns - now);
        }
        0
    }
}
