//! The connections that are counted, and the request that waits on each.
//!
//! The state of a connection is attached to the kernel's `struct sock` (`BPF_MAP_TYPE_SK_STORAGE`), and ends
//! with it. So several processes may share a connection, and no other connection is ever taken for it.
//!
//! Several threads may use a connection at once. Which of them begins a request, or ends it, is decided by
//! one atomic exchange.

use core::{
    ffi::c_void,
    intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xchg},
    ptr,
};

use aya_ebpf::{bindings::BPF_SK_STORAGE_GET_F_CREATE, helpers::generated::bpf_sk_storage_get};

use crate::{
    accepted::is_accepted,
    maps::CONNECTIONS,
    requests::{count, counter},
};

/// The address of a `struct sock`, as the verifier knows it.
#[derive(Clone, Copy)]
pub struct Sock(pub u64);

/// What is kept of a connection.
#[repr(C)]
pub struct Connection {
    /// When the request came that has no answer yet; 0: none waits.
    since_ns: u64,
    /// Whether it has been counted: 1.
    counted: u64,
}

/// A connection that is counted.
#[derive(Clone, Copy)]
pub struct Counted(*mut Connection);

impl Counted {
    /// The connection of a socket, if it was counted before.
    #[inline(always)]
    pub fn known(sock: Sock) -> Option<Self> {
        Self::get(sock, 0)
    }

    /// The connection of a socket, if it is to be counted. If it was not counted before, it is from now on.
    #[inline(always)]
    pub fn of(sock: Sock) -> Option<Self> {
        if let Some(known) = Self::known(sock) {
            return Some(known);
        }
        if !is_accepted(sock) {
            return None;
        }
        let Some(new) = Self::get(sock, u64::from(BPF_SK_STORAGE_GET_F_CREATE)) else {
            count(counter!(no_room), 1);
            return None;
        };
        // Another thread may have come at the same time.
        // SAFETY: a live map value, aligned to 8.
        let counted = unsafe { &raw mut (*new.0).counted };
        // SAFETY: as above.
        if unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(counted, 1) } == 0 {
            count(counter!(connections), 1);
        }
        Some(new)
    }

    #[inline(always)]
    fn get(sock: Sock, flags: u64) -> Option<Self> {
        let map = (&raw const CONNECTIONS).cast_mut().cast::<c_void>();
        // SAFETY: the map is one of sockets, and the verifier knows what `sock` points to.
        let value = unsafe { bpf_sk_storage_get(map, sock.0 as *mut c_void, ptr::null_mut(), flags) };
        if value.is_null() { None } else { Some(Self(value.cast())) }
    }

    /// Begins a request, if none waits. Returns whether it did.
    #[inline(always)]
    pub fn begin(self, now_ns: u64) -> bool {
        // SAFETY: a live map value, aligned to 8.
        unsafe {
            let since_ns = &raw mut (*self.0).since_ns;
            const ORDER: AtomicOrdering = AtomicOrdering::SeqCst;
            atomic_cxchg::<u64, ORDER, ORDER>(since_ns, 0, now_ns).1
        }
    }

    /// Ends the request that waits, and says since when it has. `None`: none waits.
    #[inline(always)]
    pub fn end(self) -> Option<u64> {
        // SAFETY: a live map value, aligned to 8.
        let since_ns =
            unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(&raw mut (*self.0).since_ns, 0) };
        if since_ns == 0 { None } else { Some(since_ns) }
    }
}
