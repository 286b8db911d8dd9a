//! Adds descriptors to tokio's event loop.

use std::{io, os::fd::OwnedFd};

use aya::maps::{MapData, RingBuf};
use tokio::io::{Interest, unix::AsyncFd};

/// Watches a pidfd, which becomes readable when its process ends. An event loop must be running.
///
/// # Errors
/// The error of `epoll_ctl`.
pub fn watch_pidfd(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` remains the same open descriptor for as long as it lives.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(Into::into)
}

/// Watches a ring buffer, which becomes readable when a record arrives. An event loop must be running.
///
/// # Errors
/// The error of `epoll_ctl`.
pub fn watch_ring(ring: RingBuf<MapData>) -> io::Result<AsyncFd<RingBuf<MapData>>> {
    // SAFETY: a ring buffer owns its map. The map's descriptor stays open, and does not change, while the
    // ring buffer lives.
    unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }.map_err(Into::into)
}
