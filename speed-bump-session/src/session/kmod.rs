//! A session with the kernel module: it adds targets to the module, and needs no BPF programs.
//!
//! The module counts and delays calls, in the process and all its descendants. The session adds targets,
//! opens the window, handles files that the process maps later, and removes everything at the end.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::unix::AsyncFd,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    doses::{Doses, Setting},
    error::SessionError,
    events::Event,
    functions::FunctionTable,
    interface::Session,
    run::{Ended, until},
    settings::Settings,
    state::State,
    stop::Stop,
    told::ToldHelpers,
};
use crate::{
    bounds::NAMES_OF_SESSION,
    engine::kmod::{
        KmodEngine, KmodError, Module, Records, TARGETS, TargetName, UpstreamGuard, doses::KmodDoses,
    },
    probe::{
        cost::Floors,
        in_place::{self, NotInPlace},
        plan::{Entry, SelectedFunction},
        resolve::symbols::{NamedFunction, NamedFunctions, SymbolResolver},
    },
    process::{Memory, Process, ProcessError, mapped_file::FileIdentity},
    sys::watch::watch_pidfd,
    targets::{TargetChange, TargetKind},
};

/// How often the session checks whether the process has replaced its image, and which files it maps.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const UNLOADED: &str = "somebody has unloaded the kernel module: what it counted last is not in the report";

/// What a session with the module needs at its beginning.
pub(crate) struct KmodStart {
    pub(crate) module: Module,
    pub(crate) records: Records,
    pub(crate) resolver: SymbolResolver,
    pub(crate) process: Process,
    pub(crate) found: NamedFunctions,
    /// Notices about the module, for the report.
    pub(crate) told: Vec<String>,
}

/// A running session.
pub(crate) struct KmodSession {
    state: State,
    engine: KmodDoses,
    /// Holds the files of the targets open. Only with upstream's module.
    guard: Option<UpstreamGuard>,
    resolver: SymbolResolver,
    process: Process,
    /// The memory of the image in which we resolved targets. This memory is gone when another image has
    /// replaced that image.
    image: Option<Memory>,
    files: HashSet<FileIdentity>,
    /// The functions that the session has added to the module.
    known: HashSet<SelectedFunction>,
    is_open: bool,
    is_enabled: bool,
    sources: Option<Sources>,
}

/// The sources of the event loop.
struct Sources {
    pidfd: AsyncFd<OwnedFd>,
    look: Interval,
}

/// The names of functions for the module. With upstream's module, the guard checks them.
///
/// # Errors
/// The module cannot have a target with this name, or must not.
pub(crate) fn names(
    functions: &[NamedFunction],
    mut guard: Option<&mut UpstreamGuard>,
) -> Result<Vec<TargetName>, KmodError> {
    let name = |function: &NamedFunction| {
        let NamedFunction { selected, path, symbol, address, identity } = function;
        match &mut guard {
            Some(guard) => {
                let path = guard.admit(&selected.file, path, *identity, symbol, *address)?;
                Ok(TargetName::new(Path::new(&path), symbol)?)
            }
            None => Ok(TargetName::new(path, symbol)?),
        }
    };
    functions.iter().map(name).collect()
}

impl KmodSession {
    /// Slows down the functions of a process. When this returns, the module counts every call; it delays
    /// calls after `start_after`.
    ///
    /// # Errors
    /// The session could not begin. Nothing is left in the module.
    pub(crate) fn start(start: KmodStart, settings: &Settings, stop: Stop) -> Result<Self, SessionError> {
        let KmodStart { module, records, resolver, process, mut found, mut told } = start;
        // Files of the same name can have functions of the same name, and reports cannot tell these apart. So
        // we slow down only the first one.
        let mut seen = HashSet::new();
        found.functions.retain(|function| seen.insert(function.selected.clone()));
        let selects = |index| found.functions.iter().any(|function| function.selected.target == index);
        if let Some(lost) =
            found.out_of_reach.iter().find(|of| of.target.is_some_and(|index| !selects(index)))
        {
            return Err(KmodError::OutOfReach(lost.text.clone()).into());
        }
        let image = process.memory().ok();
        let mut guard = guard(&module, &process)?;
        let wanted = names(&found.functions, guard.as_mut())?;
        let engine = KmodEngine::start(module, records, process.pid(), &wanted, &mut |text| {
            tracing::warn!("{text}");
            told.push(text);
        })?;
        let engine = KmodDoses::new(engine);
        let functions =
            FunctionTable::new(u32::try_from(TARGETS).unwrap_or(u32::MAX), None, NAMES_OF_SESSION);
        let targets = resolver.shared_targets();
        let doses = Doses::start(Box::new(engine.clone()), functions, settings, targets)?;
        let state = State::new(doses, settings, stop);
        let mut session = Self {
            state,
            engine,
            guard,
            image,
            files: files(&process),
            known: HashSet::new(),
            process,
            is_open: false,
            is_enabled: true,
            sources: None,
            resolver,
        };
        session.state.roots = vec![session.process.pid()];
        session.state.covers(session.process.pid());
        told.into_iter().for_each(|text| session.state.warn(text));
        for function in &found.functions {
            session.enter(function)?;
        }
        found.out_of_reach.iter().for_each(|remark| session.state.warn(remark.text.clone()));
        session.check_in_place(&found).map_err(KmodError::from)?;
        // The module took the process that had this PID when we added the target. If our process is still
        // alive, it was this one.
        if !session.process.is_alive() {
            return Err(KmodError::Gone { pid: session.process.pid() }.into());
        }
        session.state.started = Instant::now();
        if session.state.start_after.is_zero() {
            session.open_window();
        }
        Ok(session)
    }

    /// Checks that the module has put breakpoints into the process: the path may have led to another file.
    fn check_in_place(&self, found: &NamedFunctions) -> Result<(), NotInPlace> {
        let Some(memory) = &self.image else { return Ok(()) };
        let places = found.places.iter().map(|(file, offsets)| (&**file, offsets.clone()));
        in_place::check(&self.process, memory, places)
    }

    /// Gives a dose to the function whose target we added last.
    fn enter(&mut self, function: &NamedFunction) -> Result<(), SessionError> {
        self.known.insert(function.selected.clone());
        self.state.doses().enter(&function.selected)?;
        self.state.note_entry(function.selected.target, Entry::Symbol, Floors::default());
        Ok(())
    }

    /// Starts to delay calls.
    fn open_window(&mut self) {
        self.is_open = true;
        if let Err(error) = self.engine.open() {
            self.state.warn(format!("not all delays have begun: {error}"));
        }
    }

    fn has_replaced_its_image(&self) -> bool {
        self.image.as_ref().is_some_and(|image| self.process.has_replaced(image))
    }

    /// Checks for newly mapped files, and whether someone disabled the module. Warns of functions that the
    /// session does not cover, and returns the first reason.
    fn look(&mut self) -> Option<SessionError> {
        if self.is_enabled && matches!(self.engine.is_enabled(), Ok(false)) {
            self.is_enabled = false;
            self.state.warn(
                "somebody has disabled the kernel module: calls are neither counted nor delayed until it is \
                 enabled again"
                    .to_owned(),
            );
        }
        let files = files(&self.process);
        if files.is_subset(&self.files) {
            return None;
        }
        self.files = files;
        match self.resolver.resolve(&self.process) {
            // If the process has replaced its image, the functions may belong to the new program.
            Ok(_) if self.has_replaced_its_image() => None,
            Ok(found) => self.add_new(&found),
            Err(ProcessError::Gone { .. }) => None,
            Err(error) => {
                self.state
                    .warn(format!("functions in files that the process maps now are not covered: {error}"));
                Some(error.into())
            }
        }
    }

    fn add_new(&mut self, found: &NamedFunctions) -> Option<SessionError> {
        let mut seen = self.known.clone();
        let is_new = |function: &&NamedFunction| seen.insert(function.selected.clone());
        let new: Vec<_> = found.functions.iter().filter(is_new).cloned().collect();
        found.out_of_reach.iter().for_each(|remark| self.state.warn(remark.text.clone()));
        if new.is_empty() {
            return None;
        }
        for function in new {
            if let Err(error) = self.add(&function) {
                let name = &function.selected.name;
                self.state.warn(format!("{name} was mapped after the attach and is not covered: {error}"));
                // The other functions would fail in the same way.
                return Some(error);
            }
        }
        let missing = self.check_in_place(found).err()?;
        self.state.warn(missing.to_string());
        Some(missing.into())
    }

    fn add(&mut self, function: &NamedFunction) -> Result<(), SessionError> {
        for name in names(std::slice::from_ref(function), self.guard.as_mut())? {
            self.engine.add(name)?;
        }
        self.enter(function)
    }
}

impl Session for KmodSession {
    fn state(&self) -> &State {
        &self.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    fn processes(&self) -> Vec<&Process> {
        vec![&self.process]
    }

    /// Removed targets keep their positions in the module, with a delay of 0.
    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError> {
        if let Some(target) = change.add.iter().find(|target| target.kind != TargetKind::Native) {
            return Err(SessionError::Retarget(format!(
                "`{}`: the kernel module slows native functions alone",
                target.pattern
            )));
        }
        if let Some(target) = change.add.iter().find(|target| target.caller.is_some()) {
            return Err(SessionError::Retarget(format!(
                "`{}`: the kernel module cannot tell who calls a function (caller=)",
                target.pattern_and_caller()
            )));
        }
        let mut setting = self.state.doses().change_targets(change)?;
        let targets = Arc::clone(&self.state.doses().targets);
        self.resolver.set_targets(targets);
        self.files.clear();
        let pid = self.process.pid();
        setting.uncovered = self.look().map(|why| SessionError::Uncovered { pid, why: Box::new(why) });
        Ok(setting)
    }

    fn time_calls(&mut self, on: bool) -> Result<ToldHelpers, SessionError> {
        if on {
            return Err(SessionError::Retarget("the kernel module cannot time calls".to_owned()));
        }
        Ok(ToldHelpers::default())
    }

    fn listen(&mut self) -> io::Result<()> {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pidfd = watch_pidfd(self.process.as_fd().try_clone_to_owned()?)?;
        self.sources = Some(Sources { pidfd, look });
        Ok(())
    }

    async fn turn(&mut self) -> io::Result<Option<Ended>> {
        let opens = (!self.is_open).then(|| self.state.opens());
        let Some(Sources { pidfd, look }) = &mut self.sources else { return pending().await };
        tokio::select! {
            () = until(opens) => self.open_window(),
            ended = pidfd.readable() => {
                drop(ended?);
                self.state.events.add(Event::Gone { pid: self.process.pid() });
                return Ok(Some(Ended::TargetGone));
            }
            _ = look.tick() => {
                if self.has_replaced_its_image() {
                    self.state.events.add(Event::Replaced { pid: self.process.pid() });
                    return Ok(Some(Ended::TargetReplaced));
                }
                self.look();
            }
        }
        Ok(None)
    }

    fn catch_up(&mut self) {}

    fn detach(&mut self) {
        self.state.ended = Some(Instant::now());
        let interrupted = match self.engine.leave() {
            Ok((interrupted, warnings)) => {
                warnings.into_iter().for_each(|warning| self.state.warn(warning));
                interrupted
            }
            Err(KmodError::Absent { .. }) => {
                self.state.warn(UNLOADED.to_owned());
                0
            }
            Err(error) => {
                let text = "the kernel module may keep some of our targets until the next run";
                self.state.warn(format!("{text}: {error}"));
                0
            }
        };
        if interrupted > 0 {
            self.state.warn(format!(
                "{interrupted} delays ended early: with the session, with their process, or because \
                 somebody disabled the module"
            ));
        }
    }

    fn pending_calls(&self) -> HashMap<u32, u64> {
        HashMap::new()
    }
}

/// The guard for upstream's module; `None` for our own.
///
/// # Errors
/// We must not use the module with this process.
pub(crate) fn guard(module: &Module, process: &Process) -> Result<Option<UpstreamGuard>, KmodError> {
    Ok(module.is_upstream().then(|| UpstreamGuard::new(process.pid())).transpose()?)
}

fn files(process: &Process) -> HashSet<FileIdentity> {
    let files = process.mappings().map(|mappings| mappings.files).unwrap_or_default();
    files.into_iter().map(|mapped| mapped.identity).collect()
}
