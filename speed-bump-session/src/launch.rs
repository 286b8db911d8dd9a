//! Starts a command and holds it before the first instruction of every program that it executes.
//!
//! The command is our child. It waits until a thread of ours traces it, and then executes. At each exec it is
//! let run to the program's entry point: there the dynamic linker has mapped and relocated everything that
//! the program is linked with, and no code of the program or of Python has run. What is to be done there is
//! said by whoever takes up the [events](CommandEvent) of this module. Programs that execute others (`env`,
//! `nice`, `sh -c 'exec …'`, scripts) are followed; a program that the helper was brought into is not, as a
//! process has one tracer at a time and may want a debugger.
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

use speed_bump_abi::control_block::HelperCommand;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    presence::{HelperSetup, Presence, PresenceError},
    process::Process,
    python::helper::Room,
    units::Pid,
};

/// What becomes of the command, as its tracer tells it.
#[derive(Debug)]
pub enum CommandEvent {
    /// A program stands at its entry point.
    AtEntry(StoppedProgram),
    /// A program was not held at its entry point, and runs; says why.
    NotHeld(String),
}

/// Where the events come from; it ends when the command is no longer followed.
pub type CommandEvents = UnboundedReceiver<CommandEvent>;

/// Asks the tracer to detach from the command.
#[derive(Clone, Debug, Default)]
pub struct DetachRequest(Arc<AtomicBool>);

impl DetachRequest {
    /// Has the tracer let the command go: another thread of ours wants to trace it.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A program at its entry point. Dropping this lets it go on, followed.
#[derive(Debug)]
pub struct StoppedProgram {
    /// Process that stands at the entry point, traced by this tool.
    pub process: Process,
    orders: mpsc::Sender<Order>,
}

/// Called when there is something to take up.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What to do with a program at its entry point.
enum Order {
    /// Bring the helper in, and say by `wake` that it is.
    BringIn {
        setup: Box<HelperSetup>,
        room: Room,
        command: HelperCommand,
        outcome: mpsc::Sender<Outcome>,
        wake: Wake,
    },
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

/// The helper on its way into a program at its entry point. Dropping this lets the program go on when that is
/// done.
#[derive(Debug)]
pub struct Coming {
    pid: Pid,
    result: mpsc::Receiver<Outcome>,
}

impl StoppedProgram {
    /// Has the helper be brought in; it begins to work when Python does. `wake` is called when that is done,
    /// or cannot be.
    ///
    /// # Errors
    /// The process is gone.
    pub fn bring_in(
        self,
        setup: HelperSetup,
        room: Room,
        command: HelperCommand,
        wake: Wake,
    ) -> Result<Coming, PresenceError> {
        let pid = self.process.pid();
        let (outcome, result) = mpsc::channel();
        let order = Order::BringIn { setup: Box::new(setup), room, command, outcome, wake };
        self.orders.send(order).map_err(|_| PresenceError::Gone { pid })?;
        Ok(Coming { pid, result })
    }
}

impl Coming {
    /// What came of it, once that is known: the helper, and what holds the program; or why the program goes
    /// on without.
    pub fn outcome(&self) -> Option<Result<(Presence, Held), PresenceError>> {
        match self.result.try_recv() {
            Ok(Outcome { presence, held }) => Some(presence.map(|presence| (presence, Held(held)))),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(Err(PresenceError::Gone { pid: self.pid })),
        }
    }
}
