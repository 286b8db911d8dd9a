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

/// Targets that the module holds, those of all its users together.
pub const TARGETS: usize = 64;
