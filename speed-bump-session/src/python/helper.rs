//! The helper in a Python process, from the loader's side: the memory that both share.
//!
//! [`layout`] says what lies where in a control block, [`block`] makes and reads one, [`functions`] takes up
//! the functions that the helper finds, [`clock`] is what it
//! measures time with, [`heartbeat`] keeps it from taking us for dead, [`words`] says in
//! sentences what it reports. How it gets into the process is `inject`'s business, what it does there is that
//! of the crate `speed-bump-helper`.

pub mod block;
pub mod clock;
pub mod functions;
pub mod heartbeat;
pub mod layout;
pub mod words;

pub use block::{Block, BlockError, InPlace};
pub use clock::HelperClock;
pub use functions::{FoundFunction, LeftOut, NewFunctions};
pub use heartbeat::Heartbeat;
pub use layout::{Layout, Room};
