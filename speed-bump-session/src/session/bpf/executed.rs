//! Covers processes that execute programs. The kernel announces these execs. So do those who catch the
//! processes: a command's tracer, and the holder of the command's children. The session covers a caught
//! process before Python begins.
//!
//! The kernel may announce an exec before or after the catcher does. The order matters only if the catchers
//! miss the exec, because a thread other than the first one executed the program.

use std::time::{Duration, Instant};

use super::{
    coverage::Coverage,
    entering::{self, covered_or_warn},
    phase::{Covered, Processes},
    rooms,
};
use crate::{
    launch::{CommandEvent, StoppedProgram, execs::Executed},
    process::Process,
    python::helper::Room,
    session::error::SessionError,
    units::Pid,
};

/// How long we wait for the catcher's announcement of an exec after the kernel's.
const AHEAD: Duration = Duration::from_millis(500);

/// A process replaced its image: the kernel announced it, or a check found it.
pub(super) fn announced(pid: Pid, coverage: &mut Coverage) {
    let processes = &mut coverage.processes;
    let command = processes.command.as_ref().filter(|command| command.pid() == pid);
    let is_followed = command.is_some_and(|command| command.is_followed());
    if is_followed || processes.are_caught {
        if !has_current_image(pid, processes) {
            processes.announce_exec(pid);
        }
    } else if command.is_some() {
        if !has_current_image(pid, processes) {
            coverage.cover_anew(pid);
        }
    } else {
        coverage.cover_executed(pid);
    }
}

/// Whether the session covers a process with its current image.
fn has_current_image(pid: Pid, processes: &Processes) -> bool {
    let is_current = |covered: &Covered| covered.image.is_some() && !covered.is_replaced();
    processes.is_entering(pid) || processes.get(pid).is_some_and(is_current)
}

/// Handles the report on a caught process that executed a program.
pub(super) fn caught(executed: Executed, coverage: &mut Coverage) {
    match executed {
        Executed::Runs { pid } => cover_caught(pid, coverage),
        Executed::Late { pid, is_python, why } => {
            cover_caught(pid, coverage);
            if is_python == Some(true) || coverage.processes.has_helper(pid) {
                coverage.context.warn(format!(
                    "process {pid}: the Python that it executes could not be held at its start ({why}); its \
                     calls are seen from some milliseconds later on"
                ));
            } else if is_python.is_none() {
                coverage.context.warn(format!(
                    "process {pid}: what it executed could not be held at its start, and ended before it \
                     could be read ({why}); if it was a Python, its calls were not seen"
                ));
            }
        }
        Executed::AtEntry(stopped) => cover_at_entry(stopped, coverage),
    }
}

/// Handles an event of the command's tracer. `None` means that there will be no more.
pub(super) fn told(event: Option<CommandEvent>, coverage: &mut Coverage) {
    match event {
        Some(CommandEvent::AtEntry(stopped)) => cover_at_entry(stopped, coverage),
        Some(CommandEvent::NotHeld(why)) => {
            coverage.context.warn(format!(
                "a program was not held before its first instruction: {why}; it is covered from a few \
                 milliseconds after its start on"
            ));
            not_followed(&mut coverage.processes);
            if let Some(pid) = coverage.processes.command.as_ref().map(|command| command.pid()) {
                coverage.cover_anew(pid);
            }
        }
        None => not_followed(&mut coverage.processes),
    }
}

/// From now on, nobody reports the command's execs.
fn not_followed(processes: &mut Processes) {
    if let Some(command) = &mut processes.command {
        command.not_followed();
    }
}

/// Handles a program that we hold before its first instruction.
fn cover_at_entry(stopped: StoppedProgram, coverage: &mut Coverage) {
    let pid = stopped.process.pid();
    coverage.processes.exec_is_told(pid);
    coverage.let_go_of_image(pid);
    let covered = cover_stopped(stopped, coverage);
    covered_or_warn(pid, covered, &mut coverage.context);
}

fn cover_caught(pid: Pid, coverage: &mut Coverage) {
    coverage.processes.exec_is_told(pid);
    if coverage.context.is_root(pid) { coverage.cover_anew(pid) } else { coverage.cover_executed(pid) }
}

/// Covers processes whose exec the kernel has announced, but no catcher has.
pub(super) fn look_for_untold(coverage: &mut Coverage) {
    let Some(before) = Instant::now().checked_sub(AHEAD) else { return };
    for pid in coverage.processes.untold(before) {
        cover_caught(pid, coverage);
    }
}

/// Covers a program that we hold at its entry point, and lets it go on. It goes on at once, or, if it needs
/// the helper, when the helper is loaded.
fn cover_stopped(stopped: StoppedProgram, coverage: &mut Coverage) -> Result<(), SessionError> {
    let process = &stopped.process;
    let pid = process.pid();
    let is_command = coverage.processes.command.as_ref().is_some_and(|command| command.pid() == pid);
    let of_relatives = if is_command { None } else { coverage.processes.entry_source() };
    let plan = coverage.context.resolver.plan_at_start(process, of_relatives)?;
    let own = Process::open(pid)?;
    let for_python = plan.wants_helper();
    if !for_python && !coverage.context.settings.policies.wants_helper() {
        coverage.cover_or_warn(own, &plan, None)?;
        coverage.open_window_of(pid);
        drop(stopped);
        return Ok(());
    }
    if is_musl(process) {
        coverage.cover_or_warn(own, &plan, None)?;
        coverage.context.warn(format!(
            "process {pid}: its C library (musl) is not ready to load the helper before the program runs; it \
             is loaded as soon as possible, and calls until then are not seen"
        ));
        coverage.join_later(pid);
        if is_command {
            not_followed(&mut coverage.processes);
        }
        coverage.open_window_of(pid);
        drop(stopped);
        return Ok(());
    }
    let rooms: &[Room] = match (for_python, is_command) {
        (false, _) => &rooms::NO_PYTHON,
        (true, true) => rooms::named(&coverage.context.settings),
        (true, false) => &rooms::OF_CHILDREN,
    };
    if is_command {
        not_followed(&mut coverage.processes);
    }
    entering::enter(stopped, own, plan, rooms, coverage)
}

/// Whether the program's C library is musl, which calls constructors only after the entry point.
fn is_musl(process: &Process) -> bool {
    let files = process.mappings().map(|mappings| mappings.files).unwrap_or_default();
    files.iter().any(|file| {
        let name = file.path_in_process.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"ld-musl-")
    })
}
