//! Starts a command. Holds each program that the command executes, before the program's first instruction.
//!
//! The command is our child. The child waits until one of our threads traces it, and then executes its
//! program. At each exec we let the process run to the program's entry point. There the dynamic linker has
//! mapped and relocated everything that the program is linked with, but no code of the program or of Python
//! has run. The receiver of this module's [events](CommandEvent) decides what happens then. We follow
//! programs that execute others (`env`, `nice`, `sh -c 'exec …'`, scripts). We do not follow a program into
//! which the helper was loaded: a process has one tracer at a time, and the user may want to debug it.
//!
//! If we are killed, the kernel detaches from the command, which goes on without a tracer.

mod approach;
mod caught;
mod entry;
pub(crate) mod execs;
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

/// An event of the command, from its tracer.
#[derive(Debug)]
pub enum CommandEvent {
    /// A program is stopped at its entry point.
    AtEntry(StoppedProgram),
    /// We did not stop a program at its entry point, for this reason. The program runs.
    NotHeld(String),
}

/// The source of the events. This source ends when we no longer follow the command.
pub type CommandEvents = UnboundedReceiver<CommandEvent>;

/// Asks the tracer to detach from the command.
#[derive(Clone, Debug, Default)]
pub struct DetachRequest(Arc<AtomicBool>);

impl DetachRequest {
    /// Makes the tracer detach from the command, as another thread of ours will trace it.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A program that we hold at its entry point. When this value is dropped, the program goes on, and we follow
/// it.
#[derive(Debug)]
pub struct StoppedProgram {
    /// The process of the program. This tool traces it.
    pub process: Process,
    orders: mpsc::Sender<Order>,
}

/// Is called when there is an event.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What to do with a program that we hold at its entry point.
enum Order {
    /// Inject the helper, and call `wake` when this is done.
    BringIn {
        setup: Box<HelperSetup>,
        room: Room,
        command: HelperCommand,
        outcome: mpsc::Sender<Outcome>,
        wake: Wake,
    },
}

/// The result of an injection.
#[derive(Debug)]
struct Outcome {
    presence: Result<Presence, PresenceError>,
    /// The program stays stopped until this value is dropped.
    held: Option<mpsc::SyncSender<()>>,
}

/// A program with the helper. The program stays stopped until this value is dropped. We do not follow the
/// program any more.
#[derive(Debug)]
pub struct Held(
    #[expect(dead_code, reason = "the drop of this value has an effect")] Option<mpsc::SyncSender<()>>,
);

/// An injection into a program that we hold at its entry point. If this value is dropped, the program goes on
/// when the injection is done.
#[derive(Debug)]
pub struct Coming {
    pid: Pid,
    result: mpsc::Receiver<Outcome>,
}

impl StoppedProgram {
    /// Starts to inject the helper, which begins its work when Python starts. We call `wake` when the
    /// injection is done or has failed.
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
    /// The result, if we know it. It is the helper with the hold on the program, or the reason why the
    /// program goes on without the helper.
    pub fn outcome(&self) -> Option<Result<(Presence, Held), PresenceError>> {
        match self.result.try_recv() {
            Ok(Outcome { presence, held }) => Some(presence.map(|presence| (presence, Held(held)))),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(Err(PresenceError::Gone { pid: self.pid })),
        }
    }
}
