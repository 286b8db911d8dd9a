//! A session: from attach to detach, with its statistics.
//!
//! Every session has a `State`: its doses, functions and counters, and its final report. Other code can read
//! and change the state at any moment ([`controls`]). The engine decides which processes a session covers,
//! and how: with the BPF object the session is a [`BpfSession`](bpf::BpfSession), with the kernel module a
//! `KmodSession` (`kmod`). Both implement `Session`. [`run`] waits for a `Session`, and [`handle`] gives
//! access to it.

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
