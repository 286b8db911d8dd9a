//! A session: attach to detach, with its statistics.
//!
//! What every session has is a `State`: its doses, functions and counters, which may be asked and changed
//! at any moment ([`controls`]), and what it reports in the end. Which processes it covers, and how, depends
//! on the engine: with the BPF object it is a [`BpfSession`](bpf::BpfSession), with the kernel module a
//! `KmodSession` (`kmod`). Both are a `Session`, which [`run`] waits for and [`handle`] hands out.

pub mod bpf;
pub mod controls;
pub mod doses;
mod error;
pub mod events;
mod functions;
pub mod handle;
pub(crate) mod kmod;
pub mod known;
pub mod quit;
mod report;
pub mod run;
pub mod snapshot;
mod state;
pub mod stop;
mod waiting;
mod warnings;

use std::{collections::HashMap, io, time::Duration};

use crate::{policy::PolicyTable, stats::report::SessionReport, targets::TargetChange};
use doses::Setting;
pub use error::SessionError;
use run::Ended;
pub(crate) use state::State;

/// What a session does, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which delays it begins with, and who spins them.
    pub policies: PolicyTable,
    /// From the attach to the first trigger.
    pub start_after: Duration,
    /// From there to the last trigger; `None` is until stopped.
    pub duration: Option<Duration>,
    /// Whether children are covered.
    pub children: bool,
    /// Whether calls are timed.
    pub times: bool,
    /// Whether it is recorded who calls whom, of Python functions whose calls are timed.
    pub callers: bool,
    /// Whether a target that selects nothing is an error.
    pub strict: bool,
    /// How long a thread of a Python process may take to come to a point where it can be borrowed.
    pub inject_timeout: Duration,
}

/// A session in force, whatever its engine: attaching, following and leaving the processes that it covers.
pub(crate) trait Session {
    /// What every session has.
    fn state(&self) -> &State;

    /// The same, to change it.
    fn state_mut(&mut self) -> &mut State;

    /// Has targets come and go. What is returned has the doses that they are to have: whoever asks sets them,
    /// because that may have to wait.
    ///
    /// # Errors
    /// Nothing has changed then.
    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError>;

    /// Has the event loop wait for what [`turn`](Self::turn) waits for.
    fn listen(&mut self) -> io::Result<()>;

    /// Waits for what happens next, and takes it up. `Some`: that ends the session. May be dropped while it
    /// waits.
    async fn turn(&mut self) -> io::Result<Option<Ended>>;

    /// Takes up what has happened already.
    fn catch_up(&mut self);

    /// Detaches from everything. Counters stay readable.
    fn detach(&mut self);

    /// Calls that are not in the counters yet, by the index of their function.
    fn pending_calls(&self) -> HashMap<u32, u64>;

    /// What was counted so far.
    fn report(&self) -> SessionReport {
        self.state().report(&self.pending_calls())
    }
}
