//! The helper in a process, from injection until it has left.
//!
//! [`bring_in`](HelperSetup::bring_in) injects the helper with a control block that contains its orders, and
//! returns a [`Presence`]. When the `Presence` is dropped, the helper leaves. The session attaches to the
//! helper's stub.

pub mod stub;
pub(crate) mod survey;

use std::{
    fs::{self, File},
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::control_block::{HelperCommand, State, StubForm, notice};

use crate::{
    inject::{self, InjectError, Injected, addresses, image::IMAGE},
    launch::Wake,
    probe::{file::ProbeFile, resolve::Resolver, site::SiteKind},
    process::{Process, ProcessError, Program, RefusalKind, mapped_file::FileIdentity},
    python::helper::{Block, BlockError, Heartbeat, InPlace, Room, block::Contents, words},
    sys::ptrace::Tracee,
    targets::selector,
    units::{FileOffset, Nanos, Pid},
};
use stub::StubError;

/// How much time the helper has to get the interpreter's lock and to compare the loaded functions with the
/// targets, before we give up. Programs can hold the lock for seconds in calls of C code that do not release
/// it.
pub const INTERPRETER_PATIENCE: Duration = Duration::from_secs(10);
/// How long we wait for the helper to leave. The helper checks for commands every 200 ms, and at once when we
/// wake it. Then it needs the interpreter's lock.
pub const LEAVING_PATIENCE: Duration = Duration::from_secs(1);
/// How long we wait for the helper of a killed tool to leave.
const RESIDENT_PATIENCE: Duration = Duration::from_millis(1_500);
/// How often we poll a state that we wait for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Why the helper does not work in a process.
#[derive(Debug, thiserror::Error)]
pub enum PresenceError {
    /// We could not inject the helper.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// We could not use the helper's control block.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The targets do not fit into a selector.
    #[error(transparent)]
    Selector(#[from] selector::CompileError),
    /// The helper's image has no stub of the form that we use.
    #[error(transparent)]
    Stub(#[from] StubError),
    /// The helper reports a failure.
    #[error("{0}")]
    Failed(String),
    /// The helper did not get the interpreter's lock in time.
    #[error(
        "the helper is loaded, but the interpreter of process {pid} did not let it run within {limit}: a \
         thread holds its lock for long, as in a call of C code that has still to return"
    )]
    Overdue {
        /// PID of the process with the helper.
        pid: Pid,
        /// The time limit.
        limit: Nanos,
    },
    /// A thread keeps the interpreter's lock while it sleeps.
    #[error(
        "the helper is loaded, and cannot look at the functions of process {pid} now: a thread of it keeps \
         the interpreter's lock while it sleeps, as a uWSGI without `enable-threads` does. Send it work, or \
         start it with `enable-threads`"
    )]
    Asleep {
        /// PID of the process with the helper.
        pid: Pid,
    },
    /// The helper left although nobody told it to.
    #[error("the helper in process {pid} left again at once: is the process ending?")]
    Left {
        /// PID of the process with the helper.
        pid: Pid,
    },
    /// The process ended.
    #[error("process {pid} ended")]
    Gone {
        /// PID of the process with the helper.
        pid: Pid,
    },
    /// A signal ended the wait.
    #[error("stopped by a signal")]
    Stopped,
    /// We could not start a thread of our own.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl PresenceError {
    /// Returns the inner error if it says that the process now runs another program.
    ///
    /// # Errors
    /// Any other error, unchanged.
    pub fn into_other_program(self) -> Result<ProcessError, Self> {
        match self {
            Self::Inject(InjectError::Process(error @ ProcessError::OtherProgram { .. })) => Ok(error),
            other => Err(other),
        }
    }
}

/// The settings for every helper of a session.
#[derive(Clone, Debug)]
pub struct HelperSetup {
    /// The compiled targets.
    pub selector: Arc<[u8]>,
    /// The instruction in the stub that calls execute.
    pub stub: SiteKind,
    /// How long a thread may take to reach a safe point.
    pub timeout: Duration,
    /// The heartbeat of this tool. Without a heartbeat the helpers leave.
    pub heartbeat: Arc<Heartbeat>,
    /// The signals that helpers handle, and how long they spin on each.
    pub signals: Arc<[(u32, Nanos)]>,
    /// How helpers delay without a trap; `None` if they do not.
    pub in_place: Option<InPlace>,
}

impl HelperSetup {
    /// The setup for a resolver's targets. Starts the heartbeat.
    ///
    /// # Errors
    /// We cannot compile the targets, or cannot start the thread.
    pub fn new(resolver: &Resolver, timeout: Duration) -> Result<Self, PresenceError> {
        let selector = selector::compile(resolver.targets())?;
        let heartbeat = Arc::new(Heartbeat::start().map_err(PresenceError::Thread)?);
        let signals = Arc::default();
        let stub = resolver.stub();
        Ok(Self { selector: selector.into(), stub, timeout, heartbeat, signals, in_place: None })
    }

    /// Injects the helper into a process that runs this program. `interpreters` are the files with the
    /// interpreter's code. Does not wait for the interpreter: [`Presence::wait_active`] does.
    ///
    /// # Errors
    /// We could not inject the helper. The process is unchanged.
    pub fn bring_in(
        &self,
        process: &Process,
        program: &Program,
        interpreters: &[FileIdentity],
        room: Room,
        command: HelperCommand,
    ) -> Result<Presence, PresenceError> {
        let contents = self.fitting(process, room, command)?;
        let limits = inject::Limits { safe_point: self.timeout, ..inject::Limits::default() };
        let deadline = Instant::now() + RESIDENT_PATIENCE;
        let mut block = None;
        let injected = loop {
            let mut fill = |file: &File| self.fill(file, &contents).map(|filled| block = Some(filled));
            match inject::inject(process, program, IMAGE, interpreters, &mut fill, limits) {
                // If a tool was killed, its helper notices this within a second.
                Err(InjectError::InUse { .. } | InjectError::Leaving { .. }) if Instant::now() < deadline => {
                    thread::sleep(LOOK_EVERY * 10);
                }
                result => break result?,
            }
        };
        let mut presence = self.presence(process.pid(), injected, block)?;
        presence.program = Some(program.clone());
        Ok(presence)
    }

    /// Injects the helper into a program that has not executed any instruction. The program's only thread is
    /// stopped, and the calling thread traces it. The helper starts its work when Python starts. We call
    /// `ready` with the result before the program runs. Afterwards we no longer trace the program.
    ///
    /// # Errors
    /// We could not inject the helper. The program runs unchanged, and we did not call `ready`.
    pub fn bring_in_at_start(
        &self,
        process: &Process,
        tracee: Tracee,
        room: Room,
        command: HelperCommand,
        ready: impl FnOnce(Result<Presence, PresenceError>),
    ) -> Result<(), PresenceError> {
        let contents = self.fitting(process, room, command)?;
        let block = OnceLock::new();
        let mut fill = |file: &File| self.fill(file, &contents).map(|filled| drop(block.set(filled)));
        let mut ready = Some(ready);
        let mut loaded = |injected| {
            if let Some(ready) = ready.take() {
                ready(self.presence(process.pid(), injected, block.get().cloned()));
            }
        };
        let limits = inject::Limits::default();
        inject::inject_into_stopped(process, IMAGE, tracee, &mut fill, limits, &mut loaded)?;
        Ok(())
    }

    /// The contents of a new control block. The block is small enough for the address space that the process
    /// has left.
    fn fitting(
        &self,
        process: &Process,
        room: Room,
        command: HelperCommand,
    ) -> Result<Contents<'_>, PresenceError> {
        let contents = self.contents(room, command, Some(process));
        let largest = addresses::largest_block(process).map_err(InjectError::from)?;
        let room = room.that_fits(|room| Contents { room, ..contents }.size() <= largest);
        Ok(Contents { room, ..contents })
    }

    /// The contents of a new control block.
    fn contents(&self, room: Room, command: HelperCommand, process: Option<&Process>) -> Contents<'_> {
        let stub_form = if self.stub == SiteKind::Nop5 { StubForm::Nop5 } else { StubForm::Nop };
        let signals = if command == HelperCommand::Survey { &[] } else { &*self.signals };
        let runs = matches!(command, HelperCommand::Run | HelperCommand::RunFromStart);
        let in_place = self.in_place.filter(|_| runs).map(|in_place| {
            // In another time namespace, the process's clock has an offset.
            let offsets =
                |of: &str| fs::read_to_string(format!("/proc/{of}/timens_offsets")).unwrap_or_default();
            let theirs = process.map(|process| offsets(&process.shown_by().to_string())).unwrap_or_default();
            InPlace { clock: in_place.clock.in_namespace(&theirs, &offsets("self")), ..in_place }
        });
        Contents { room, selector: &self.selector, stub_form, command, signals, in_place }
    }

    /// Writes a control block. The helper needs our heartbeat from its first check on. That check may come
    /// long before we know that the helper runs.
    fn fill(&self, file: &File, contents: &Contents<'_>) -> io::Result<Arc<Block>> {
        contents.write(file)?;
        let block = Block::new(file.try_clone()?, contents).map_err(io::Error::other)?;
        let block = Arc::new(block);
        self.heartbeat.add(&block);
        Ok(block)
    }

    fn presence(
        &self,
        pid: Pid,
        injected: Injected,
        block: Option<Arc<Block>>,
    ) -> Result<Presence, PresenceError> {
        // `fill` has made the block, if the helper was called at all.
        let block = block.ok_or(PresenceError::Gone { pid })?;
        // From now on, dropping this value makes the helper leave.
        let mut presence = Presence {
            pid,
            program: None,
            block,
            file: Arc::new(injected.image),
            stub: self.stub,
            offset: FileOffset(0),
        };
        presence.offset = stub::find(presence.file.file(), self.stub)?;
        Ok(presence)
    }

    /// Like [`bring_in`](Self::bring_in), but on a separate thread, because the process may reach a safe
    /// point late. We call `wake` at the end.
    ///
    /// # Errors
    /// We could not start the thread, or the process is gone.
    pub fn begin(
        &self,
        process: &Process,
        program: Program,
        interpreters: Vec<FileIdentity>,
        room: Room,
        command: HelperCommand,
        wake: Wake,
    ) -> Result<Joining, PresenceError> {
        let own = Process::open(process.pid()).map_err(|error| match error.kind() {
            RefusalKind::Gone => PresenceError::Gone { pid: process.pid() },
            _ => InjectError::from(error).into(),
        })?;
        if own.started() != process.started() {
            return Err(PresenceError::Gone { pid: process.pid() });
        }
        let (setup, is_over) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        let bring_in = move || {
            let came = setup.bring_in(&own, &program, &interpreters, room, command);
            over.store(true, Ordering::Release);
            wake();
            came
        };
        let thread = thread::Builder::new().name("inject".to_owned()).spawn(bring_in);
        let thread = thread.map_err(PresenceError::Thread)?;
        Ok(Joining { pid: process.pid(), thread: Some(thread), is_over })
    }
}

/// An injection in progress. Dropping this value waits for the end of the injection, so that no thread of the
/// process stays borrowed.
#[derive(Debug)]
pub struct Joining {
    pid: Pid,
    thread: Option<thread::JoinHandle<Result<Presence, PresenceError>>>,
    is_over: Arc<AtomicBool>,
}

impl Joining {
    /// Whether [`finish`](Self::finish) would return at once.
    pub fn is_finished(&self) -> bool {
        // If the thread panicked, there will be no result.
        self.is_over.load(Ordering::Acquire)
            || self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// Waits for the end of the injection.
    ///
    /// # Errors
    /// See [`HelperSetup::bring_in`].
    pub fn finish(mut self) -> Result<Presence, PresenceError> {
        let result = self.thread.take().map(thread::JoinHandle::join);
        match result {
            Some(Ok(result)) => result,
            // The thread panicked.
            Some(Err(_)) | None => Err(PresenceError::Gone { pid: self.pid }),
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// The helper in a process. Dropping this value makes the helper leave, without waiting for it.
#[derive(Debug)]
pub struct Presence {
    pid: Pid,
    /// The program that the process ran at the injection; `None` if it had not started.
    program: Option<Program>,
    /// The control block, which the helper shares with us.
    pub block: Arc<Block>,
    /// The helper's image, as the process maps it.
    pub file: Arc<ProbeFile>,
    /// The instruction in the stub that calls execute.
    pub stub: SiteKind,
    /// The offset of the stub in the image.
    pub offset: FileOffset,
}

impl Presence {
    /// The process into which we injected the helper.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The program that the process ran at the injection; `None` if it had not started.
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// The error for a helper that does not answer. If the process now runs another program, the error says
    /// so instead of `error`.
    fn late(&self, process: &Process, error: PresenceError) -> PresenceError {
        match self.program.as_ref().map(|program| process.check_program(program)) {
            Some(Err(replaced)) => InjectError::from(replaced).into(),
            Some(Ok(())) | None => error,
        }
    }

    /// Waits until the helper is active. Calls `stopped` repeatedly, and gives up when it returns true.
    ///
    /// # Errors
    /// The helper is not active, for this reason.
    pub fn wait_active(&self, process: &Process, stopped: impl Fn() -> bool) -> Result<(), PresenceError> {
        let pid = self.pid;
        let deadline = Instant::now() + INTERPRETER_PATIENCE;
        loop {
            let report = self.block.report()?;
            match report.state {
                Some(State::Active) => return Ok(()),
                Some(State::Failed) => return Err(self.failure()),
                Some(State::Left) => return Err(PresenceError::Left { pid }),
                Some(State::Fresh | State::Waiting) | None => {}
            }
            if report.notices & notice::GIL_KEPT != 0 {
                return Err(self.late(process, PresenceError::Asleep { pid }));
            }
            if stopped() {
                return Err(PresenceError::Stopped);
            }
            if !process.is_alive() {
                return Err(PresenceError::Gone { pid });
            }
            if Instant::now() >= deadline {
                let overdue = PresenceError::Overdue { pid, limit: INTERPRETER_PATIENCE.into() };
                return Err(self.late(process, overdue));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Why the helper failed: its own text and our explanation.
    pub fn failure(&self) -> PresenceError {
        match self.block.failure() {
            Ok((reason, text)) => PresenceError::Failed(words::failure(reason, &text)),
            Err(error) => error.into(),
        }
    }

    /// Tells the helper to leave. [`has_left`](Self::has_left) returns whether it has.
    pub fn leave(&self) {
        if let Err(error) = self.block.command(HelperCommand::Leave) {
            tracing::debug!(
                "the helper in process {} is not told to leave, and will notice: {error}",
                self.pid
            );
        }
    }

    /// Whether the helper has undone everything. Also true if we can no longer find out.
    pub fn has_left(&self) -> bool {
        self.block.report().map_or(true, |report| matches!(report.state, Some(State::Left | State::Failed)))
    }

    /// Tells the helper to leave, and waits until it has left, up to the time limit. Returns whether the
    /// helper has left.
    pub fn leave_and_wait(&self, process: &Process, stopped: impl Fn() -> bool) -> bool {
        self.leave();
        let deadline = Instant::now() + LEAVING_PATIENCE;
        while !self.has_left() {
            if stopped() || !process.is_alive() || Instant::now() >= deadline {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        true
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{mem::offset_of, os::unix::fs::FileExt as _};

    use speed_bump_abi::control_block::ControlBlock;

    use super::*;

    #[test]
    fn a_helper_hears_us_before_it_is_known_to_be_in() {
        let setup = HelperSetup {
            selector: Arc::default(),
            stub: SiteKind::Nop,
            timeout: Duration::ZERO,
            heartbeat: Arc::new(Heartbeat::start().unwrap()),
            signals: Arc::default(),
            in_place: None,
        };
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file: File = rustix::fs::memfd_create("speed-bump-control", flags).unwrap().into();
        let _block = setup
            .fill(&file, &setup.contents(Room { functions: 1 }, HelperCommand::HandleSignals, None))
            .unwrap();
        let beats = || {
            let mut beats = [0; 4];
            file.read_exact_at(&mut beats, offset_of!(ControlBlock, heartbeat) as u64).unwrap();
            u32::from_ne_bytes(beats)
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while beats() < 3 {
            assert!(Instant::now() < deadline, "{} beats", beats());
            thread::sleep(LOOK_EVERY);
        }
    }
}
