//! Descriptors in tokio's event loop.

use std::{io, os::fd::OwnedFd};

use aya::maps::{MapData, RingBuf};
use tokio::io::{Interest, unix::AsyncFd};

/// Watches a pidfd, which becomes readable when its process ends. Needs a running event loop.
///
/// # Errors
/// What `epoll_ctl` returns.
pub fn watch_pidfd(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(Into::into)
}

/// Watches a ring buffer, which becomes readable when a record arrives. Needs a running event loop.
///
/// # Errors
/// What `epoll_ctl` returns.
pub fn watch_ring(ring: RingBuf<MapData>) -> io::Result<AsyncFd<RingBuf<MapData>>> {
    // SAFETY: a ring buffer owns its map, whose descriptor stays open and the same for as long as it lives.
    unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }.map_err(Into::into)
}
