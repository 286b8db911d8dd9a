//! A session of a command that we started: its programs are covered before their first instruction.
//!
//! Who [launched](crate::launch) it tells of each program that it executes. The kernel's own announcements of
//! its execs matter only where it is not followed, or not seen: another thread than the first may have
//! executed.

use super::{
    BpfSession, capacity,
    helpers::{CHILD_ROOMS, NO_PYTHON},
    offsets_to_follow,
    processes::FoundBy,
};
use crate::{
    engine::bpf::Hold,
    launch::{CommandEvent, CommandEvents, DetachRequest, StoppedProgram, execs},
    probe::resolve::Resolver,
    process::Process,
    python::helper::Room,
    session::{SessionError, Settings, events::Event, stop::Stop},
    targets::TargetKind,
    units::Pid,
};

/// The command.
#[derive(Debug)]
pub(super) struct StartedCommand {
    pid: Pid,
    /// Has it followed no more.
    detach: DetachRequest,
    /// Whether its execs are told.
    is_followed: bool,
    /// Whether the window was opened: its first program runs, or is about to.
    has_begun: bool,
}

impl BpfSession {
    /// Prepares everything for a command that is yet to be started: see [`expect`](Self::expect).
    ///
    /// # Errors
    /// Nothing is left behind.
    pub fn prepare(resolver: Resolver, settings: Settings) -> Result<Self, SessionError> {
        let follow = offsets_to_follow();
        let capacity = capacity::of_command(&resolver, &settings);
        // What is no CPython is not worth to be held.
        let may_inject = resolver.may_inject() || settings.policies.wants_helper();
        let catches = follow.is_some() && settings.children && may_inject;
        let hold = if catches { execs::hold() } else { Hold::default() };
        let mut session = Self::load(resolver, settings, capacity, follow, hold, &[], Stop::default())?;
        if catches {
            session.catch_execs()?;
        }
        if follow.is_some() {
            session.engine.follow_processes()?;
            session.follows = true;
        }
        Ok(session)
    }

    /// Waits for the first program of the command, and covers it.
    ///
    /// # Errors
    /// It has ended, or nothing can be covered.
    pub fn expect(
        &mut self,
        pid: Pid,
        mut command_events: CommandEvents,
        detach: DetachRequest,
    ) -> Result<(), SessionError> {
        self.command_is(pid);
        self.context.state.roots = vec![pid];
        self.command = Some(StartedCommand { pid, detach, is_followed: true, has_begun: false });
        match command_events.blocking_recv() {
            Some(told) => self.told(told),
            None => self.not_followed(),
        }
        self.sources.command_events = Some(command_events);
        self.wait_for_entering(pid);
        self.open_window_of(pid);
        Ok(())
    }

    /// Takes up what the command's tracer tells.
    pub(crate) fn told(&mut self, told: CommandEvent) {
        match told {
            CommandEvent::AtEntry(stopped) => self.cover_at_entry(stopped),
            CommandEvent::NotHeld(why) => {
                self.context.warn(format!(
                    "a program was not held before its first instruction: {why}; it is covered from a few \
                     milliseconds after its start on"
                ));
                self.not_followed();
                if let Some(pid) = self.command.as_ref().map(|command| command.pid) {
                    self.cover_anew(pid);
                }
            }
        }
    }

    /// Whether this is the command.
    pub(super) fn is_command(&self, pid: Pid) -> bool {
        self.command.as_ref().is_some_and(|command| command.pid == pid)
    }

    /// Whether this is the command, and its tracer tells of its execs.
    pub(super) fn is_followed(&self, pid: Pid) -> bool {
        self.command.as_ref().is_some_and(|command| command.pid == pid && command.is_followed)
    }

    /// The command's execs are told no more.
    pub(crate) fn not_followed(&mut self) {
        if let Some(command) = &mut self.command {
            command.is_followed = false;
        }
    }

    /// Covers a program that stands at its entry point, and lets it go on: now, or as soon as the helper is
    /// in that is to be brought in.
    pub(super) fn cover_stopped(&mut self, stopped: StoppedProgram) -> Result<(), SessionError> {
        let process = &stopped.process;
        let pid = process.pid();
        let is_command = self.is_command(pid);
        let of_relatives = if is_command { None } else { self.entry_source() };
        let plan = self.context.resolver.plan_at_start(process, of_relatives)?;
        let own = Process::open(pid)?;
        let for_python = plan.wants_helper();
        if !for_python && !self.context.settings.policies.wants_helper() {
            self.cover_or_warn(own, &plan, None)?;
            self.open_window_of(pid);
            drop(stopped);
            return Ok(());
        }
        if is_musl(process) {
            self.cover_or_warn(own, &plan, None)?;
            self.context.warn(format!(
                "process {pid}: its C library (musl) is not ready to load the helper before the program \
                 runs; it is loaded as soon as possible, and calls until then are not seen"
            ));
            self.join_later(pid);
            if is_command {
                self.not_followed();
            }
            self.open_window_of(pid);
            drop(stopped);
            return Ok(());
        }
        let rooms: &[Room] = match (for_python, is_command) {
            (false, _) => &NO_PYTHON,
            (true, true) => self.named_rooms(),
            (true, false) => &CHILD_ROOMS,
        };
        if is_command {
            self.not_followed();
        }
        self.enter(stopped, own, plan, rooms)
    }

    /// The helper is to be brought into a program that runs: whoever follows it must let it go.
    pub(super) fn stop_following(&mut self, pid: Pid) {
        if let Some(command) = self.command.as_ref().filter(|command| command.pid == pid) {
            command.detach.request();
        }
    }

    /// A process is covered: if it is the command, and runs its first program, the window opens.
    pub(super) fn open_window_of(&mut self, pid: Pid) {
        if let Some(command) =
            self.command.as_mut().filter(|command| command.pid == pid && !command.has_begun)
        {
            command.has_begun = true;
            self.open_window();
        }
    }

    pub(super) fn cover_anew(&mut self, pid: Pid) {
        self.let_go_of_image(pid);
        match Process::open(pid) {
            Ok(process) => self.cover_found(process, FoundBy::Exec),
            Err(error) => tracing::debug!("process {pid} is not covered after its exec: {error}"),
        }
    }

    pub(super) fn let_go_of_image(&mut self, pid: Pid) {
        if let Some(covered) = self.processes.remove(pid) {
            self.context.state.events.add(Event::Replaced { pid });
            self.let_go(covered);
        }
    }

    pub(super) fn is_gone(&self, pid: Pid) -> bool {
        !Process::open(pid).is_ok_and(|process| process.is_alive())
    }

    /// At the end: what kept targets from selecting anything.
    pub fn tell_unselected(&mut self) {
        let selected: Vec<bool> =
            self.report().targets.iter().map(|target| !target.functions.is_empty()).collect();
        let targets = self.context.resolver.targets().iter().zip(selected);
        let missing: Vec<String> = targets
            .filter(|(_, selected)| !selected)
            .map(|((_, target), _)| {
                let among = match target.kind {
                    TargetKind::Python => "the Python functions that were loaded",
                    TargetKind::Native | TargetKind::Usdt => "the files that were mapped",
                };
                format!("line {}: `{}` selected nothing among {among}", target.line, target.text)
            })
            .collect();
        for text in missing {
            self.context.warn(text);
        }
    }
}

/// Whether the program's C library is musl, which runs constructors after the entry point only.
fn is_musl(process: &Process) -> bool {
    let files = process.mappings().map(|mappings| mappings.files).unwrap_or_default();
    files.iter().any(|file| {
        let name = file.path_in_process.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"ld-musl-")
    })
}
