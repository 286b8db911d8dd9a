//! The engine `kmod`: the kernel module speed_bump spins. We control the module by writing to its files in
//! sysfs (kmod/README.md).
//!
//! [`Module`] stands for these files, [`Listing`] for the contents of `targets_list`, and [`TargetName`] for
//! a name in the module's commands. [`KmodEngine`] has one session's targets in the module. When someone
//! kills the tool, the module keeps the tool's targets. So [`Records`] note which tool added which targets,
//! and the next tool removes them.

pub(crate) mod doses;
mod engine;
mod error;
mod listing;
mod module;
mod name;
mod records;
mod release;
mod upstream;

pub use engine::{Counts, KmodEngine, Left};
pub use error::{KmodError, Refusal};
pub use listing::{FileState, Listed, Listing};
pub use module::{FOLDER, Module};
pub use name::{NameError, PATH_BYTES, SYMBOL_BYTES, TargetName};
pub use records::{Holder, RECORDS, Record, Records};
pub use release::recover;
pub use upstream::{UpstreamGuard, UpstreamRefusal};

/// A warning for users of upstream's module.
pub const UPSTREAM: &str = "this is upstream's kernel module: a program that the kernel starts by itself \
    hangs for ever if it calls one of these functions; calls count when their delay is over; `delivered_ns` \
    is what was requested, as that module does not measure it; removing targets waits for delays that have \
    begun";

/// The most targets that the module can have, over all its users.
pub const TARGETS: usize = 64;
