//! A session: attach to detach, with its statistics.
//!
//! What every session has is a `State`: its doses, functions and counters, which may be asked and changed
//! at any moment ([`controls`]), and what it reports in the end. Which processes it covers, and how, depends
//! on the engine: with the BPF object it is a [`BpfSession`](bpf::BpfSession), with the kernel module a
//! `KmodSession` (`kmod`). Both are a `Session`, which [`run`] waits for and [`handle`] hands out.

pub mod bpf;
pub mod controls;
pub mod doses;
pub mod ended;
mod error;
pub mod events;
mod functions;
pub mod handle;
mod interface;
pub(crate) mod kmod;
pub mod known;
pub mod quit;
mod report;
mod requests;
pub mod run;
mod settings;
pub mod snapshot;
mod state;
pub mod stop;
mod told;
mod waiting;
mod warnings;

pub use error::SessionError;
pub use settings::Settings;
