//! A session with the kernel module: its targets in place of BPF programs, from the first to the report.
//!
//! The module counts and spins; this adds targets, rewrites their delays where the window opens, takes up
//! files that the process maps later, and leaves.

use std::{
    collections::{BTreeMap, HashSet},
    os::fd::AsFd as _,
    path::Path,
    time::{Duration, Instant},
};

use speed_bump_abi::FunctionStats;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    run::{Ended, until},
    stop::Stop,
    warnings::Warnings,
};
use crate::{
    engine::{
        EngineKind,
        kmod::{Counts, KmodEngine, KmodError, Module, Records, TargetName, UpstreamGuard, Wanted},
    },
    policy::PolicyTable,
    probe::{
        in_place::{self, NotInPlace},
        plan::{Entry, SelectedFunction},
        resolve::symbols::{NamedFunction, NamedFunctions, SymbolResolver},
    },
    process::{Memory, Process, ProcessError, mapped_file::FileIdentity},
    stats::report::{FunctionReport, SCHEMA, SessionReport, TargetReport},
    sys::watch::watch_pidfd,
    targets::TargetIndex,
    units::Nanos,
};

/// How often it is looked whether the process has replaced its image, and what it maps.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Said in each session with it, before anything is added.
const UPSTREAM: &str = "this is upstream's kernel module: a program that the kernel starts by itself hangs \
    for ever if it calls one of these functions; calls count when their delay is over; `delivered_ns` is \
    what was requested, as that module does not measure it; removing targets waits for delays that have \
    begun";

const UNLOADED: &str = "somebody has unloaded the kernel module: what it counted last is not in the report";

/// What a session with the module does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KmodSettings {
    /// Which delays.
    pub policies: PolicyTable,
    /// From the attach to the first delay.
    pub start_after: Duration,
    /// From there to the last; `None` is until stopped.
    pub duration: Option<Duration>,
}

/// A session in force.
#[derive(Debug)]
pub struct KmodSession {
    engine: KmodEngine,
    /// With upstream's module. Holds the files of the targets.
    guard: Option<UpstreamGuard>,
    resolver: SymbolResolver,
    settings: KmodSettings,
    process: Process,
    /// The memory of the image that was resolved; gone when another replaced it.
    image: Option<Memory>,
    files: HashSet<FileIdentity>,
    /// In the order of the engine's targets.
    functions: Vec<Function>,
    counts: Vec<Option<Counts>>,
    is_open: bool,
    is_enabled: bool,
    warnings: Warnings,
    started: Instant,
    ended: Option<Instant>,
}

/// A function that is slowed down.
#[derive(Clone, Debug)]
struct Function {
    selected: SelectedFunction,
    delay: Nanos,
    /// What was counted when the window opened: these calls were not delayed.
    before: u64,
}

/// Turns functions into what the module is told. Upstream's comes with a guard.
///
/// # Errors
/// The module cannot be told of one, or must not be.
pub fn wanted(
    functions: &[NamedFunction],
    mut guard: Option<&mut UpstreamGuard>,
    delay: impl Fn(TargetIndex) -> Nanos,
) -> Result<Vec<Wanted>, KmodError> {
    let wanted = |function: &NamedFunction| {
        let NamedFunction { selected, path, symbol, address, identity } = function;
        let name = match &mut guard {
            Some(guard) => {
                let path = guard.admit(&selected.file, path, *identity, symbol, *address)?;
                TargetName::new(Path::new(&path), symbol)?
            }
            None => TargetName::new(path, symbol)?,
        };
        Ok(Wanted { name, delay: delay(function.selected.target) })
    };
    functions.iter().map(wanted).collect()
}

impl KmodSession {
    /// Slows these functions of a process down. When this returns every call is counted, and delayed from
    /// `start_after` on. `tell` hears at once what is of use before that, or should this fail; the report has
    /// it too.
    ///
    /// # Errors
    /// Nothing is left in the module.
    pub fn start(
        module: Module,
        records: Records,
        resolver: SymbolResolver,
        settings: KmodSettings,
        process: Process,
        found: &NamedFunctions,
        mut tell: impl FnMut(&str),
    ) -> Result<Self, KmodError> {
        let selects = |index| found.functions.iter().any(|function| function.selected.target == index);
        if let Some(lost) =
            found.out_of_reach.iter().find(|of| of.target.is_some_and(|index| !selects(index)))
        {
            return Err(KmodError::OutOfReach(lost.text.clone()));
        }
        let image = process.memory().ok();
        let mut guard = guard(&module, &process)?;
        let is_open = settings.start_after.is_zero();
        let delay = |target| if is_open { settings.policies.delay(target) } else { Nanos(0) };
        let wanted = wanted(&found.functions, guard.as_mut(), delay)?;
        let mut told = Vec::new();
        let mut tell = |text: String| {
            tell(&text);
            told.push(text);
        };
        if guard.is_some() {
            tell(UPSTREAM.to_owned());
        }
        let engine = KmodEngine::start(module, records, process.pid(), &wanted, &mut tell)?;
        let mut session = Self {
            engine,
            guard,
            settings,
            image,
            files: files(&process),
            process,
            functions: Vec::new(),
            counts: Vec::new(),
            is_open,
            is_enabled: true,
            warnings: Warnings::with(told),
            started: Instant::now(),
            ended: None,
            resolver,
        };
        session.enter(&found.functions);
        found.out_of_reach.iter().for_each(|remark| session.warn(remark.text.clone()));
        session.check_in_place(found)?;
        // The module keeps the process that had the number then: it has to be this one.
        if session.process.is_alive() {
            Ok(session)
        } else {
            Err(KmodError::Gone { pid: session.process.pid() })
        }
    }

    /// Looks whether the module has put breakpoints into the process: its path may have led it to another
    /// file.
    fn check_in_place(&self, found: &NamedFunctions) -> Result<(), NotInPlace> {
        let Some(memory) = &self.image else { return Ok(()) };
        let places = found.places.iter().map(|(file, offsets)| (&**file, offsets.clone()));
        in_place::check(&self.process, memory, places)
    }

    fn enter(&mut self, functions: &[NamedFunction]) {
        for function in functions {
            let delay = self.settings.policies.delay(function.selected.target);
            self.functions.push(Function { selected: function.selected.clone(), delay, before: 0 });
        }
    }

    /// Runs the session until something ends it. `show` is called every `show_every`, to refresh what people
    /// see.
    ///
    /// # Errors
    /// The event loop itself could not be set up.
    pub async fn run(
        &mut self,
        stop: &Stop,
        show_every: Duration,
        mut show: impl FnMut(&mut Self),
    ) -> std::io::Result<Ended> {
        let pidfd = watch_pidfd(self.process.as_fd().try_clone_to_owned()?)?;
        let opens = (!self.is_open).then(|| self.started + self.settings.start_after);
        let closes = self
            .settings
            .duration
            .and_then(|after| (self.started + self.settings.start_after).checked_add(after));
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut refresh = interval(show_every);
        loop {
            tokio::select! {
                () = stop.asked() => return Ok(Ended::Stopped),
                () = until(closes) => return Ok(Ended::Elapsed),
                () = until(opens.filter(|_| !self.is_open)) => self.open_window(),
                ended = pidfd.readable() => {
                    drop(ended?);
                    return Ok(Ended::TargetGone);
                }
                _ = look.tick() => {
                    if self.has_replaced_its_image() {
                        return Ok(Ended::TargetReplaced);
                    }
                    self.look();
                }
                _ = refresh.tick() => show(self),
            }
        }
    }

    /// From here on calls are delayed. Those that come at this very moment may count on either side.
    fn open_window(&mut self) {
        self.is_open = true;
        self.read_counts();
        for (function, counts) in self.functions.iter_mut().zip(&self.counts) {
            function.before = counts.map_or(0, |counts| counts.hits);
        }
        let functions = &self.functions;
        if let Err(error) =
            self.engine.set_delays(|at| functions.get(at).map_or(Nanos(0), |function| function.delay))
        {
            self.warn(format!("not all delays have begun: {error}"));
        }
    }

    fn has_replaced_its_image(&self) -> bool {
        self.image.as_ref().is_some_and(Memory::is_gone)
    }

    /// Looks what the process has mapped since, and whether somebody has disabled the module.
    fn look(&mut self) {
        if self.is_enabled && matches!(self.engine.is_enabled(), Ok(false)) {
            self.is_enabled = false;
            self.warn(
                "somebody has disabled the kernel module: calls are neither counted nor delayed until \
                       it is enabled again"
                    .to_owned(),
            );
        }
        let files = files(&self.process);
        if files.is_subset(&self.files) {
            return;
        }
        self.files = files;
        match self.resolver.resolve(&self.process) {
            // What was found may be of the program that has replaced it.
            Ok(_) if self.has_replaced_its_image() => {}
            Ok(found) => self.add_new(found),
            Err(ProcessError::Gone { .. }) => {}
            Err(error) => {
                self.warn(format!("functions in files that the process maps now are not covered: {error}"))
            }
        }
    }

    fn add_new(&mut self, found: NamedFunctions) {
        let is_new = |function: &NamedFunction| {
            !self.functions.iter().any(|known| known.selected == function.selected)
        };
        let new: Vec<_> = found.functions.iter().filter(|function| is_new(function)).cloned().collect();
        found.out_of_reach.iter().for_each(|remark| self.warn(remark.text.clone()));
        if new.is_empty() {
            return;
        }
        for function in new {
            let delay = self.settings.policies.delay(function.selected.target);
            let now = if self.is_open { delay } else { Nanos(0) };
            let added = wanted(std::slice::from_ref(&function), self.guard.as_mut(), |_| now)
                .and_then(|wanted| self.engine.add(&wanted));
            if let Err(error) = added {
                let name = &function.selected.name;
                self.warn(format!("{name} was mapped after the attach and is not covered: {error}"));
                // The rest would fail as this did.
                return;
            }
            self.functions.push(Function { selected: function.selected, delay, before: 0 });
        }
        if let Err(error) = self.check_in_place(&found) {
            self.warn(error.to_string());
        }
    }

    fn read_counts(&mut self) {
        match self.engine.counts() {
            Ok(counts) => self.counts = counts,
            Err(error) => tracing::debug!("no counts: {error}"),
        }
    }

    /// Removes what was added, and puts `enabled` back as it was.
    pub fn leave(&mut self) {
        self.ended = Some(Instant::now());
        match self.engine.leave() {
            Ok(left) => {
                self.counts = left.counts;
                left.warnings.into_iter().for_each(|warning| self.warn(warning));
            }
            Err(KmodError::Absent { .. }) => self.warn(UNLOADED.to_owned()),
            Err(error) => self
                .warn(format!("the kernel module may keep some of our targets until the next run: {error}")),
        }
        let interrupted: u64 = self.counts.iter().flatten().map(|counts| counts.interrupted).sum();
        if interrupted > 0 {
            self.warn(format!(
                "{interrupted} delays ended early: with the session, with their process, or \
                               because somebody disabled the module"
            ));
        }
    }

    /// What was counted so far.
    pub fn report(&mut self) -> SessionReport {
        if self.ended.is_none() {
            self.read_counts();
        }
        let mut by_target: BTreeMap<TargetIndex, Vec<FunctionReport>> = BTreeMap::new();
        for (function, counts) in self.functions.iter().zip(&self.counts) {
            let mut report = function.report(counts.unwrap_or_default(), self.is_open);
            if self.engine.is_upstream() {
                report.delivered_ns = report.requested_ns;
            }
            by_target.entry(function.selected.target).or_default().push(report);
        }
        let targets = self.resolver.targets().iter().map(|(index, target)| {
            let functions = by_target.remove(&index).unwrap_or_default();
            let entry = (!functions.is_empty()).then_some(Entry::Symbol);
            let delay = self.settings.policies.delay(index);
            TargetReport { entry, ..TargetReport::new(target, EngineKind::Kmod, delay, functions) }
        });
        SessionReport {
            schema: SCHEMA,
            pid: self.process.pid(),
            pids: vec![self.process.pid()],
            processes: 1,
            engine: EngineKind::Kmod,
            targets: targets.collect(),
            duration: self.ended.map_or_else(|| self.started.elapsed(), |ended| ended - self.started),
            warnings: self.warnings.list(),
        }
    }

    fn warn(&mut self, warning: String) {
        self.warnings.add(warning);
    }
}

impl Function {
    fn report(&self, counts: Counts, is_open: bool) -> FunctionReport {
        let delayed =
            if is_open && self.delay > Nanos(0) { counts.hits.saturating_sub(self.before) } else { 0 };
        let stats = FunctionStats {
            calls: counts.hits,
            delayed,
            requested_ns: delayed.saturating_mul(self.delay.0),
            delivered_ns: counts.injected.0,
            ..FunctionStats::default()
        };
        FunctionReport::new(self.selected.name.clone(), self.selected.file.clone(), None, stats)
    }
}

/// What upstream's module wants looked at; nothing with ours.
///
/// # Errors
/// It must not be asked to slow this process down.
pub fn guard(module: &Module, process: &Process) -> Result<Option<UpstreamGuard>, KmodError> {
    Ok(module.is_upstream().then(|| UpstreamGuard::new(process.pid())).transpose()?)
}

fn files(process: &Process) -> HashSet<FileIdentity> {
    process
        .mappings()
        .map(|mappings| mappings.files.iter().map(|file| file.identity).collect())
        .unwrap_or_default()
}
