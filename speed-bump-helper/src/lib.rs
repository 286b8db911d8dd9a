//! What the loader puts into a Python process: it finds the selected functions there, and has their calls run
//! into a stub that a uprobe lies on.
//!
//! It lives in a process that is not ours. So it links nothing and needs nothing of its host but `dlsym`; it
//! allocates with system calls alone; it keeps no lock that a forked child could inherit; nothing in it
//! panics by intent; and what it cannot do it refuses, with a reason in the control block.
//!
//! One session: the loader calls [`speed_bump_attach`] on a stopped thread. That maps the control block
//! (`block`) and starts a thread (`session`), which takes the GIL, looks at all functions there are
//! (`survey`), has Python report calls (`coverage`, in sub-interpreters `others`), and then watches the
//! loader (`watch`) until it wants it to leave, or is gone. Then everything is undone, and the image lies
//! there, at no cost, until the next session.
//!
//! The workspace builds this as an ordinary library, for its checks and tests. The shared object is made by
//! speed-bump-session's build script, with the feature `image`.

#![cfg_attr(not(test), no_std)]
// Without an allocator there is nothing to box a failure in.
#![allow(clippy::result_large_err)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("the helper is for 64-bit little-endian Linux");

mod arch;
mod attach;
mod audit;
mod block;
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
