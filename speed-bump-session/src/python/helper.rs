//! The helper in a Python process, seen from the loader: the memory that helper and loader share.
//!
//! `layout` is the layout of a control block. [`block`] creates and reads control blocks. `functions` reads
//! the functions that the helper finds. `clock` is the helper's clock. `heartbeat` shows the helper that we
//! live. [`words`] turns the helper's reports into sentences. `inject` loads the helper into the process. The
//! code of the helper is the crate `speed-bump-helper`.

pub mod block;
pub(crate) mod clock;
pub(crate) mod functions;
pub(crate) mod heartbeat;
pub(crate) mod layout;
pub mod words;

pub use block::{Block, BlockError, InPlace};
pub use clock::HelperClock;
pub use functions::{FoundFunction, LeftOut, NewFunctions};
pub use heartbeat::Heartbeat;
pub use layout::{Layout, Room};
