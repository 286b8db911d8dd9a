//! What happens at every probe site once the function is known: count, ask the policy, delay.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use speed_bump_abi::{Coldness, FunctionStats, NO_POLICY, NotDelayed, Policy, policy::decide};

use crate::{
    bucket, count,
    decision::not_delayed,
    histogram,
    maps::{self, COLDNESS, CONTROL, COUNTERS, FUNCTIONS},
    policy, signal,
    spin::Spin,
    telltale,
};

/// Counts a call of `function` if it is not delayed at any time, because it has no policy, or one without a
/// delay. Returns whether that is so. This needs no clock: reading it takes as long as everything else here.
/// `other`: as for [`visit_for`].
#[inline(always)]
pub fn passes(function: u32, other: u32) -> bool {
    let (Some(entry), Some(control)) = (FUNCTIONS.get(function), CONTROL.get(0)) else { return true };
    let number = entry.policy_or(other);
    let why = match number {
        NO_POLICY => NotDelayed::NoPolicy,
        _ if policy::delay_in_force(control, number).is_some_and(|ns| ns != 0) => return false,
        _ => NotDelayed::NoDelay,
    };
    if let Some(stats) = maps::stats(function) {
        // SAFETY: `stats` points to a live map value.
        unsafe { count::add(&raw mut (*stats).calls, 1) };
    }
    not_delayed(why, function);
    true
}

/// Counts a call of `function` and delays it if its policy says so. Returns whether it was delayed.
#[inline(always)]
pub fn visit<S: Spin>(function: u32, overhead_ns: u32, entered_ns: u64, lookups_only: bool) -> bool {
    visit_for::<S>(function, NO_POLICY, overhead_ns, entered_ns, lookups_only)
}

/// As [`visit`]. A function without a policy of its own has the policy `other`, which the call names.
///
/// `entered_ns` is the first clock reading of the program and `overhead_ns` what the trap costs around the
/// program: the delay counts from `entered_ns` and is shortened by `overhead_ns`, so that the caller loses
/// what was asked for. `lookups_only` says that nothing but look-ups in arrays lies between that reading and
/// this call, as where coldness was measured.
#[inline(always)]
pub fn visit_for<S: Spin>(
    function: u32,
    other: u32,
    overhead_ns: u32,
    entered_ns: u64,
    lookups_only: bool,
) -> bool {
    let (Some(entry), Some(stats)) = (FUNCTIONS.get(function), maps::stats(function)) else {
        return false;
    };
    // SAFETY: `stats` points to a live map value.
    unsafe { count::add(&raw mut (*stats).calls, 1) };

    let number = entry.policy_or(other);
    let Some(control) = CONTROL.get(0) else { return false };
    // With a bound, look-ups of the bucket come after this reading: coldness was measured without them.
    let mut looked_up_ns = 0;
    let decided = decide(
        number,
        || control.is_open(entered_ns),
        || policy::in_force(control, number),
        || Some(count::next(COUNTERS.get_ptr_mut(number)?)),
        |delay_ns| {
            let share = bucket::share(control);
            if share == 0 {
                return true;
            }
            // SAFETY: the helper has no preconditions.
            looked_up_ns = unsafe { bpf_ktime_get_ns() };
            bucket::has_room(control, share, delay_ns, entered_ns)
        },
    );
    let policy = match decided {
        Ok(policy) => policy,
        Err(Some(why)) => {
            not_delayed(why, function);
            if why == NotDelayed::Bound {
                // SAFETY: `stats` points to a live map value.
                unsafe { count::add(&raw mut (*stats).bounded, 1) };
            }
            return false;
        }
        Err(None) => return false,
    };
    let delay_ns = policy.delay_ns;

    let mut overhead_ns = u64::from(overhead_ns);
    let mut now_ns = entered_ns;
    if lookups_only && let Some(coldness) = COLDNESS.get(Coldness::WAY_IN) {
        // SAFETY: the helper has no preconditions.
        now_ns = if looked_up_ns == 0 { unsafe { bpf_ktime_get_ns() } } else { looked_up_ns };
        // SAFETY: `stats` points to a live map value; any value of it will do.
        let ended_ns = unsafe { (&raw const (*stats).ended_ns).read_volatile() };
        overhead_ns += coldness.more_after_gap_ns(now_ns - entered_ns, entered_ns.saturating_sub(ended_ns));
    }
    let mut helpers_ns = if policy.signal == 0 { 0 } else { Policy::helpers_share_ns(delay_ns) };
    overhead_ns += telltale::more_ns(stats, delay_ns - helpers_ns);
    if helpers_ns != 0 {
        match signal::obstacle(policy.signal) {
            None => overhead_ns += policy.signal_ns,
            Some(obstacle) => {
                not_delayed(obstacle, function);
                if !S::SPINS_AGAIN || policy.or_spin == 0 {
                    missed(stats);
                    return false;
                }
                helpers_ns = 0;
            }
        }
    }
    let mut spent_ns = spin_for::<S>(stats, delay_ns - helpers_ns, overhead_ns, entered_ns, now_ns);
    // We check the dose last of all, because it may have changed meanwhile: with another dose the signal may
    // mean another delay. Then this delay ends here.
    if helpers_ns != 0 && policy::in_force(control, number).is_none_or(|now| now.delay_ns != delay_ns) {
        helpers_ns = 0;
    }
    if helpers_ns != 0 && !signal::send(policy.signal) {
        if !S::SPINS_AGAIN || policy.or_spin == 0 {
            missed(stats);
            return false;
        }
        spent_ns = spin_for::<S>(stats, delay_ns, overhead_ns, entered_ns, entered_ns + spent_ns);
        helpers_ns = 0;
    }
    let delivered_ns = spent_ns + overhead_ns + helpers_ns;
    histogram::count(stats, delay_ns, delivered_ns, spent_ns != 0);
    // SAFETY: as above.
    unsafe {
        count::add(&raw mut (*stats).delayed, 1);
        count::add(&raw mut (*stats).requested_ns, delay_ns);
        count::add(&raw mut (*stats).delivered_ns, delivered_ns);
        if spent_ns + helpers_ns != 0 {
            (&raw mut (*stats).ended_ns).write_volatile(entered_ns + spent_ns + helpers_ns);
        }
    }
    true
}

/// Spins for this long, counted from `entered_ns` on, minus the overhead. Returns how much time has passed
/// since then. It is a function of its own in BPF too, so that the object contains it only once.
#[inline(never)]
fn spin_for<S: Spin>(
    stats: *mut FunctionStats,
    ns: u64,
    overhead_ns: u64,
    entered_ns: u64,
    now_ns: u64,
) -> u64 {
    if ns <= overhead_ns {
        return 0;
    }
    telltale::walk();
    let ended_ns = S::until(entered_ns + (ns - overhead_ns), now_ns);
    telltale::observe(stats, ns, ended_ns);
    ended_ns - entered_ns
}

#[inline(always)]
fn missed(stats: *mut FunctionStats) {
    // SAFETY: `stats` points to a live map value.
    unsafe { count::add(&raw mut (*stats).missed, 1) };
}
