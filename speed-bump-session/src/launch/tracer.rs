//! The thread that traces the command.

use std::{
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    sync::{Arc, mpsc},
};

use tokio::sync::mpsc::UnboundedSender;

use super::{CommandEvent, DetachRequest, Order, Outcome, StoppedProgram, approach::Approach};
use crate::{
    process::Process,
    sys::{
        ptrace::{Resume, Stop, Tracee},
        watchdog::Watchdog,
    },
    units::Pid,
};

/// Our ends of the pipes to the child. The child uses the pipes before it executes its program.
#[derive(Debug)]
pub(super) struct Gate {
    /// The pipe from which we read the child's PID.
    pub(super) pid: PipeReader,
    /// The pipe on which the child waits.
    pub(super) go: PipeWriter,
}

/// Follows the child until it ends, or until the helper is loaded into it.
pub(super) fn follow(gate: Gate, command_events: &UnboundedSender<CommandEvent>, detach: &DetachRequest) {
    let Gate { mut pid, mut go } = gate;
    let mut number = [0; 4];
    // The child may have failed before it sent its PID.
    if pid.read_exact(&mut number).is_err() {
        return;
    }
    let Some(child) = Pid::new(i32::from_ne_bytes(number)) else { return };
    let traced = Tracee::seize_for_exec(child, true);
    // This fails only if the child has ended.
    let _ = go.write_all(&[1]);
    drop(go);
    let ended = match traced {
        Ok(tracee) => serve(tracee, command_events, detach),
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        // If the session is over, there is no receiver any more.
        let _ = command_events.send(CommandEvent::NotHeld(format!("it cannot be traced: {error}")));
    }
}

/// The state of a program of the command.
enum Progress {
    /// The program runs.
    Runs,
    /// The program runs towards its entry point.
    Starts(Approach),
}

fn serve(
    mut tracee: Tracee,
    command_events: &UnboundedSender<CommandEvent>,
    detach: &DetachRequest,
) -> io::Result<()> {
    let mut progress = Progress::Runs;
    loop {
        let Some(stop) = tracee.wait_long(|| detach.is_requested())? else { return let_go(tracee, progress) };
        let _watchdog;
        let signal = match (stop, progress) {
            (Stop::Ended, _) => return Ok(()),
            (Stop::Exec, _) => {
                progress = match Approach::begin(&tracee) {
                    Ok(approach) => Progress::Starts(approach),
                    Err(error) => {
                        // We detach first, because other threads of ours will trace the command.
                        tracee.detach(0)?;
                        let _ = command_events.send(CommandEvent::NotHeld(error.to_string()));
                        return Ok(());
                    }
                };
                0
            }
            (stop, Progress::Starts(approach)) if approach.ends_with(stop, &tracee)? => {
                // The command is stopped until we let it go.
                _watchdog = Watchdog::start();
                let process = approach.arrive();
                progress = Progress::Runs;
                let tell = |stopped| command_events.send(CommandEvent::AtEntry(stopped)).is_ok();
                let Some(followed) = at_entry(process, tracee, tell) else { return Ok(()) };
                tracee = followed;
                0
            }
            (Stop::Group, before) => {
                progress = before;
                tracee.stay_stopped()?;
                continue;
            }
            (Stop::Signal(signal), Progress::Starts(approach)) => {
                let passed = approach.passes(signal, &tracee)?;
                progress = Progress::Starts(approach);
                passed
            }
            (Stop::Signal(signal), before) => {
                progress = before;
                signal
            }
            (Stop::Interrupted | Stop::SystemCall, before) => {
                progress = before;
                0
            }
        };
        match tracee.resume(Resume::Freely, signal) {
            // Someone killed the process. The next wait returns its end.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            resumed => resumed?,
        }
    }
}

/// Detaches from a running command.
fn let_go(tracee: Tracee, progress: Progress) -> io::Result<()> {
    tracee.interrupt()?;
    let Some(stop) = tracee.wait_long(|| false)? else { return Ok(()) };
    let signal = match (stop, progress) {
        (Stop::Ended, _) => return Ok(()),
        (stop, Progress::Starts(approach)) => approach.abandon(stop, &tracee)?,
        (Stop::Signal(signal), Progress::Runs) => signal,
        (Stop::Interrupted | Stop::Group | Stop::SystemCall | Stop::Exec, Progress::Runs) => 0,
    };
    tracee.detach(signal)
}

/// Reports that the program is at its entry point, and executes the order that it gets. Returns `None` if we
/// no longer trace the program.
pub(super) fn at_entry(
    process: Process,
    tracee: Tracee,
    tell: impl FnOnce(StoppedProgram) -> bool,
) -> Option<Tracee> {
    let (orders, order) = mpsc::channel();
    let Ok(own) = Process::open(tracee.thread()) else { return Some(tracee) };
    if !tell(StoppedProgram { process: own, orders }) {
        return Some(tracee);
    }
    let Ok(Order::BringIn { setup, room, command, outcome, wake }) = order.recv() else {
        return Some(tracee);
    };
    let (held, released) = mpsc::sync_channel::<()>(0);
    let (told, woken) = (outcome.clone(), Arc::clone(&wake));
    let brought = setup.bring_in_at_start(&process, tracee, room, command, move |presence| {
        if told.send(Outcome { presence, held: Some(held) }).is_ok() {
            woken();
            // Returns when the receiver of the outcome drops its hold.
            let _ = released.recv();
        }
    });
    if let Err(error) = brought {
        let _ = outcome.send(Outcome { presence: Err(error), held: None });
    }
    wake();
    None
}
