//! The library that the loader puts into a Python process: it finds the selected functions there, and makes
//! their calls run into a stub with a uprobe on it.
//!
//! It lives in a process that is not ours. So it links nothing, and needs only `dlsym` from its host; it
//! allocates by system calls alone; it holds no lock that a forked child could inherit; no code in it is
//! meant to panic; and what it cannot do it refuses, with a reason in the control block.
//!
//! A session: the loader calls [`speed_bump_attach`] on a stopped thread. That maps the control block
//! (`block`) and starts a thread (`session`). The thread takes the GIL, judges all loaded functions
//! (`survey`) and makes Python report calls (`coverage`, and `subinterpreters`). Then it watches the loader
//! (`watch`) until the session ends or the loader is gone. It undoes everything, and the image stays, at no
//! cost, until the next session.
//!
//! The workspace builds this as an ordinary library, for checks and tests. The build script of
//! speed-bump-session makes the shared object, with the feature `image`.

#![cfg_attr(not(test), no_std)]
// Without an allocator there is no box for a failure.
#![allow(clippy::result_large_err)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("the helper is for 64-bit little-endian Linux");

mod arch;
mod attach;
mod audit;
mod block;
mod buckets;
mod clock;
mod cold;
mod coverage;
mod delay;
mod fault;
mod frame_hook;
mod from_start;
mod host;
#[cfg(feature = "image")]
mod image;
mod judge;
mod life;
mod list;
mod locks;
mod monitoring;
mod python;
mod session;
mod signals;
mod stage;
mod stub;
mod subinterpreters;
mod survey;
mod sys;
mod table;
mod times;
mod watch;

pub use attach::speed_bump_attach;

/// The folder of this crate's `lib.rs`, for the build script that compiles the helper's shared object of it.
#[cfg(feature = "sources")]
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
