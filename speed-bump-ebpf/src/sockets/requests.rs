//! What is a request: received when the one before was answered, and answered when something is sent.

use core::hint::black_box;

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use speed_bump_abi::{Latencies, Requests};

use crate::{
    connection::{Counted, Sock},
    count::add,
    maps::{PROCESSES, THREADS, counts, has, set},
    status::has_failed,
};

/// Counts something on this processor.
#[inline(always)]
pub fn count(field: impl Fn(*mut Requests) -> *mut u64, amount: u64) {
    if let Some(counts) = counts() {
        add(field(counts), amount);
    }
}

/// The pointer to a field of a `Requests`.
macro_rules! counter {
    ($field:ident) => {
        // SAFETY: the pointer is to a live map value.
        |counts| unsafe { &raw mut (*counts).$field }
    };
}
pub(crate) use counter;

/// Whether a process of the service does this. For all other processes the program ends here.
#[inline(always)]
pub fn is_of_service() -> bool {
    has(&PROCESSES, (bpf_get_current_pid_tgid() >> 32) as u32)
}

#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// The process has received something on a socket.
#[inline(always)]
pub fn received(sock: Sock) {
    let Some(connection) = Counted::of(sock) else { return };
    if connection.begin(now_ns()) {
        count(counter!(received), 1);
    } else {
        count(counter!(more_receives), 1);
    }
}

/// The process has sent something on a socket.
#[inline(always)]
pub fn sent(sock: Sock) {
    let Some(connection) = Counted::of(sock) else { return };
    match connection.end() {
        Some(since_ns) => {
            answered(now_ns().saturating_sub(since_ns));
            if has_failed() {
                count(counter!(failed), 1);
            }
            set(&THREADS, bpf_get_current_pid_tgid() as u32);
        }
        None => count(counter!(more_sends), 1),
    }
}

/// A connection is no more.
#[inline(always)]
pub fn closed(sock: Sock) {
    if let Some(connection) = Counted::known(sock)
        && let Some(since_ns) = connection.end()
    {
        count(counter!(abandoned), 1);
        count(counter!(abandoned_ns), now_ns().saturating_sub(since_ns));
    }
}

#[inline(always)]
fn answered(took_ns: u64) {
    let Some(counts) = counts() else { return };
    // The compiler knows the range of the result, and would drop the comparison that the verifier needs.
    let bucket = black_box(Latencies::bucket(took_ns));
    if bucket >= Latencies::BUCKETS {
        return;
    }
    // SAFETY: `counts` points to a live map value, and `bucket` is one of it.
    unsafe {
        add(&raw mut (*counts).answered, 1);
        add(&raw mut (*counts).latency_ns, took_ns);
        add(&raw mut (*counts).latencies.buckets[bucket], 1);
    }
}
