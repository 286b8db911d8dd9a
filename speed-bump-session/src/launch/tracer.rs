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

/// The ends of the pipes to the child before it executes.
#[derive(Debug)]
pub(super) struct Gate {
    /// The pipe from which we read its PID.
    pub(super) pid: PipeReader,
    /// The pipe that it waits on.
    pub(super) go: PipeWriter,
}

/// Follows the child until it ends, or until it has got the helper.
pub(super) fn follow(gate: Gate, command_events: &UnboundedSender<CommandEvent>, detach: &DetachRequest) {
    let Gate { mut pid, mut go } = gate;
    let mut number = [0; 4];
    // It may have failed before it got there.
    if pid.read_exact(&mut number).is_err() {
        return;
    }
    let Some(child) = Pid::new(i32::from_ne_bytes(number)) else { return };
    let traced = Tracee::seize_for_exec(child, true);
    // Fails only if the child has ended.
    let _ = go.write_all(&[1]);
    drop(go);
    let ended = match traced {
        Ok(tracee) => serve(tracee, command_events, detach),
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        // There is no receiver any more when the session is over.
        let _ = command_events.send(CommandEvent::NotHeld(format!("it cannot be traced: {error}")));
    }
}

/// The state of a program of the command.
enum Progress {
    /// It runs.
    Runs,
    /// It runs to its entry point.
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
                        // First, as other threads of ours will want to trace it.
                        tracee.detach(0)?;
                        let _ = command_events.send(CommandEvent::NotHeld(error.to_string()));
                        return Ok(());
                    }
                };
                0
            }
            (stop, Progress::Starts(approach)) if approach.ends_with(stop, &tracee)? => {
                // It is stopped until we let it go.
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
            // It was killed; the next wait returns that.
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

/// Reports that the program is at its entry point, and follows the order. `None`: it is no longer traced.
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
            // Ends when the receiver is dropped.
            let _ = released.recv();
        }
    });
    if let Err(error) = brought {
        let _ = outcome.send(Outcome { presence: Err(error), held: None });
    }
    wake();
    None
}
