//! The engine `kmod`: the kernel module speed_bump spins, and is driven by writing to its files in sysfs
//! (kmod/README.md).
//!
//! [`Module`] is those files, [`Listing`] what one of them says, [`TargetName`] what may stand in a command.
//! [`KmodEngine`] is what one session has set there. The module keeps what is set when the tool is killed, so
//! [`Records`] say who set what: whoever comes next takes it away.

pub mod doses;
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

/// What users of upstream's module have to know.
pub const UPSTREAM: &str = "this is upstream's kernel module: a program that the kernel starts by itself \
    hangs for ever if it calls one of these functions; calls count when their delay is over; `delivered_ns` \
    is what was requested, as that module does not measure it; removing targets waits for delays that have \
    begun";

/// Targets that the module holds, those of all its users together.
pub const TARGETS: usize = 64;
