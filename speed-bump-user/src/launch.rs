//! Starts a command and holds it before the first instruction of every program that it executes.
//!
//! The command is our child. It waits until a thread of ours traces it, and then executes. At each exec it is
//! let run to the program's entry point: there the dynamic linker has mapped and relocated everything that
//! the program is linked with, and no code of the program or of Python has run. What is to be done there is
//! said by whoever takes up what this module [tells](Told). Programs that execute others (`env`, `nice`, `sh
//! -c 'exec …'`, scripts) are followed; a program that the helper was brought into is not, as a process has
//! one tracer at a time and may want a debugger.
//!
//! If we are killed, the kernel lets the command go: it runs on untraced.

mod approach;
mod caught;
mod entry;
pub mod execs;
pub mod signals;
mod start;
mod tracer;
pub mod user;

pub use start::{Launch, LaunchError};

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use speed_bump_abi::control_block::Command;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    presence::{Presence, PresenceError, Terms},
    process::Process,
    python::helper::Room,
};

/// What becomes of the command, as its tracer tells it.
#[derive(Debug)]
pub enum Told {
    /// A program stands at its entry point.
    AtEntry(Standing),
    /// A program was not held at its entry point, and runs; says why.
    NotHeld(String),
}

/// Where the news come from; it ends when the command is no longer followed.
pub type News = UnboundedReceiver<Told>;

/// What keeps the command traced.
#[derive(Clone, Debug, Default)]
pub struct Leash(Arc<AtomicBool>);

impl Leash {
    /// Has the tracer let the command go: another thread of ours wants to trace it.
    pub fn let_go(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_let_go(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A program at its entry point. Dropping this lets it go on, followed.
#[derive(Debug)]
pub struct Standing {
    /// The process.
    pub process: Process,
    orders: mpsc::Sender<Order>,
}

/// What to do with a program at its entry point.
#[derive(Debug)]
enum Order {
    /// Bring the helper in.
    BringIn { terms: Box<Terms>, room: Room, command: Command, outcome: mpsc::Sender<Outcome> },
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    presence: Result<Presence, PresenceError>,
    /// Where the program stands still until this is dropped.
    held: Option<mpsc::SyncSender<()>>,
}

/// A program that the helper was brought into stands still until this is dropped; it is not followed.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "dropping it is what it is for")] Option<mpsc::SyncSender<()>>);

impl Standing {
    /// Brings the helper in; it begins to work when Python does.
    ///
    /// # Errors
    /// The program goes on without, and is not followed.
    pub fn bring_in(
        self,
        terms: &Terms,
        room: Room,
        command: Command,
    ) -> Result<(Presence, Held), PresenceError> {
        let gone = || PresenceError::Gone { pid: self.process.pid() };
        let (outcome, result) = mpsc::channel();
        let order = Order::BringIn { terms: Box::new(terms.clone()), room, command, outcome };
        self.orders.send(order).map_err(|_| gone())?;
        let Outcome { presence, held } = result.recv().map_err(|_| gone())?;
        Ok((presence?, Held(held)))
    }
}
