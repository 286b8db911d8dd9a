//! A session: attach to detach, with its statistics.
//!
//! Owns everything that is in force — the engine, the links of every covered process, the followers of
//! perf maps — and drops it in an order that leaves no trace. It is driven from outside: [`run`] waits for
//! what happens and calls the methods here. Those wait for the kernel, when probes come and go, and for
//! helpers, when the session begins and ends. What may be asked at any moment waits for none of that:
//! [`doses`].

mod command;
pub mod controls;
pub mod doses;
mod error;
pub mod events;
mod executed;
pub mod functions;
pub mod handle;
mod helpers;
mod in_place;
pub mod kmod;
pub mod known;
mod late_files;
mod limits;
pub mod processes;
pub mod python;
mod renewal;
pub mod report;
pub mod run;
mod signals;
pub mod sites;
pub mod snapshot;
pub mod stop;
mod tick;
mod warnings;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use speed_bump_abi::FunctionStats;

use crate::{
    bounds::NAMES_OF_SESSION,
    engine::bpf::{BpfEngine, Capacity, Hold, switch::now},
    kernel::TaskOffsets,
    policy::PolicyTable,
    presence::Terms,
    probe::{
        plan::{Entry, Plan},
        resolve::Resolver,
    },
    process::Process,
    python::helper::Room,
    targets::{TargetIndex, TargetKind},
    units::{Nanos, Pid},
};
use controls::Controls;
use doses::Doses;
pub use error::SessionError;
use events::{Event, EventLog};
use functions::{FunctionTable, bytes_of};
use helpers::{HelperId, Helpers};
use processes::Covered;
use renewal::Renewal;
use sites::SiteTable;
use stop::Stop;

/// Functions that may appear after the attach, beyond twice those known then.
const LATE_FUNCTIONS: u32 = 8_192;
/// Probe sites that may appear after the attach, in images that children execute.
const LATE_SITES: u32 = 16_384;
/// What the counters of helpers' functions may take of the kernel's memory, as far as they are for children
/// to come.
const COUNTERS_BYTES: usize = 64 << 20;
/// Trampolines that may appear after the attach.
const LATE_TRAMPOLINES: u32 = 262_144;

/// What a session does, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which delays it begins with, and who spins them.
    pub policies: PolicyTable,
    /// From the attach to the first trigger.
    pub start_after: Duration,
    /// From there to the last trigger; `None` is until stopped.
    pub duration: Option<Duration>,
    /// Whether children are covered.
    pub children: bool,
    /// Whether a target that selects nothing is an error.
    pub strict: bool,
    /// How long a thread of a Python process may take to come to a point where it can be borrowed.
    pub inject_timeout: Duration,
}

/// A session in force.
pub struct Session {
    pub(crate) engine: BpfEngine,
    pub(crate) resolver: Resolver,
    pub(crate) settings: Settings,
    /// What may be asked and changed from outside: its doses, functions and counters.
    doses: Arc<Mutex<Doses>>,
    pub(crate) sites: SiteTable,
    pub(crate) covered: BTreeMap<Pid, Covered>,
    pub(crate) root: Pid,
    pub(crate) roots: Vec<Pid>,
    /// Whether the last of them to go executed another program.
    root_was_replaced: bool,
    /// The command that we started, if that is what the session is of.
    command: Option<command::Command>,
    /// Whoever catches its children at their execs.
    catching: Option<executed::Catching>,
    /// Since when an exec of a child is known that those have not told of.
    untold: BTreeMap<Pid, Instant>,
    /// How often a process was covered: the next index.
    pub(crate) coverings: u32,
    pub(crate) pids_seen: BTreeSet<Pid>,
    warnings: warnings::Warnings,
    events: EventLog,
    pub(crate) python: python::Locations,
    room: python::Rooms,
    pub(crate) helpers: Helpers,
    pub(crate) stop: Stop,
    renewal: Renewal,
    pub(crate) ways: BTreeMap<TargetIndex, Way>,
    pub(crate) looked: tick::Looked,
    /// Whether the kernel announces forks and execs.
    pub(crate) follows: bool,
    pub(crate) started: Instant,
    pub(crate) ended: Option<Instant>,
}

/// How the calls of a target became visible, and at what cost: of several ways, the dearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) entry: Entry,
    pub(crate) floor: Nanos,
}

impl Session {
    /// Attaches to the given processes, each with the plan that was made for it. When this returns, every
    /// call is counted, and delayed from `start_after` on. `stop` stops it, from now on.
    ///
    /// # Errors
    /// Nothing is left attached.
    pub fn start(
        resolver: Resolver,
        settings: Settings,
        mut roots: Vec<(Process, Plan)>,
        stop: Stop,
    ) -> Result<Self, SessionError> {
        in_place::check_reach(&resolver, &roots)?;
        let follow = offsets_to_follow();
        let capacity = capacity(&resolver, &roots, &settings);
        let mut session = Self::load(resolver, settings, capacity, follow, Hold::default(), &roots)?;
        stop.stops(session.engine.switch());
        session.stop = stop;
        session.root = roots.first().map_or_else(Pid::own, |(process, _)| process.pid());
        session.roots = roots.iter().map(|(process, _)| process.pid()).collect();
        let helpers = session.bring_helpers_in(&mut roots);
        let begun = helpers.and_then(|helpers| session.begin(roots, helpers, follow.is_some()));
        if let Err(error) = begun {
            // So that nothing is left when we say so.
            session.detach();
            return Err(error);
        }
        Ok(session)
    }

    /// Covers processes that have their helpers.
    fn begin(
        &mut self,
        roots: Vec<(Process, Plan)>,
        helpers: Vec<Option<HelperId>>,
        follows: bool,
    ) -> Result<(), SessionError> {
        let helper_is_planned = roots.iter().any(|(_, plan)| plan.wants_helper());
        if follows {
            self.engine.follow_processes()?;
            self.follows = true;
        }
        for ((process, plan), helper) in roots.into_iter().zip(helpers) {
            self.cover(process, &plan, helper)?;
        }
        if self.settings.children {
            self.look_for_children();
            self.wait_for_joining();
        }
        if helper_is_planned || self.helpers.are_any() {
            self.check_selections()?;
        }
        self.open_window();
        Ok(())
    }

    /// Loads the engine, and covers nothing yet.
    fn load(
        resolver: Resolver,
        settings: Settings,
        capacity: Capacity,
        follow: Option<TaskOffsets>,
        hold: Hold,
        roots: &[(Process, Plan)],
    ) -> Result<Self, SessionError> {
        limits::check(&resolver, &settings, roots)?;
        let signals = signals::Signals::choose(&resolver, &settings, roots)?;
        let mut engine = BpfEngine::load(capacity, resolver.calibration().form(), follow, hold)?;
        engine.set_coldness(resolver.calibration().coldness())?;
        // The window is closed until everything is attached, so that it counts from there.
        let renewal = Renewal::start(Arc::clone(engine.switch())).map_err(SessionError::Thread)?;
        let may_inject = resolver.may_inject() || settings.policies.wants_helper();
        let terms = may_inject.then(|| Terms::new(&resolver, settings.inject_timeout)).transpose();
        let mut terms = terms.map_err(|error| SessionError::Python(error.to_string()))?;
        if let Some(terms) = &mut terms {
            terms.signals = signals.for_helpers().into();
        }
        let warnings = warnings::Warnings::with(signals.limits.clone());
        let functions = FunctionTable::new(capacity.functions, room_for_names(roots));
        let doses = Doses::start(&engine, functions, settings.policies.clone(), signals)?;
        Ok(Self {
            engine,
            resolver,
            settings,
            doses: Arc::new(Mutex::new(doses)),
            sites: SiteTable::new(capacity.sites),
            covered: BTreeMap::new(),
            root: Pid::own(),
            roots: Vec::new(),
            root_was_replaced: false,
            command: None,
            catching: None,
            untold: BTreeMap::new(),
            coverings: 0,
            pids_seen: BTreeSet::new(),
            warnings,
            events: EventLog::default(),
            python: python::Locations::default(),
            room: python::Rooms::default(),
            helpers: Helpers::new(terms),
            stop: Stop::default(),
            renewal,
            ways: BTreeMap::new(),
            looked: tick::Looked::new(),
            follows: false,
            started: Instant::now(),
            ended: None,
        })
    }

    /// From here on `start_after` counts.
    fn open_window(&mut self) {
        self.came_round();
        self.started = Instant::now();
        let start_ns = now().0.saturating_add(Nanos::from(self.settings.start_after).0);
        let end_ns = match self.settings.duration {
            Some(duration) => start_ns.saturating_add(Nanos::from(duration).0),
            None => u64::MAX,
        };
        self.engine.switch().open(Nanos(start_ns), Nanos(end_ns));
    }

    /// The event loop is at work: doses go on.
    pub(crate) fn came_round(&self) {
        self.renewal.came_round();
    }

    /// When the window closes, if it does.
    pub fn ends(&self) -> Option<Instant> {
        self.started.checked_add(self.settings.start_after + self.settings.duration?)
    }

    /// Detaches from everything. Counters stay readable.
    pub fn detach(&mut self) {
        self.ended = Some(Instant::now());
        self.engine.switch().stop();
        self.catching = None;
        let began = Instant::now();
        self.end_signals();
        self.send_helpers_away();
        for (_, covered) in std::mem::take(&mut self.covered) {
            self.untrack(covered.process.pid());
        }
        self.leave_stubs();
        tracing::info!("detached in {}", Nanos::from(began.elapsed()));
    }

    /// Tells of Python targets that select nothing, neither among what the helpers found nor in a plan; under
    /// `strict` that ends the session. Where no helper looked for functions, it has been told before.
    fn check_selections(&mut self) -> Result<(), SessionError> {
        let mut missing = Vec::new();
        for index in self.without_functions() {
            let Some(target) = self.resolver.targets().get(index) else { continue };
            missing.push(format!(
                "line {}: `{}` selects nothing among the functions that are loaded now",
                target.line, target.text
            ));
        }
        if self.settings.strict && !missing.is_empty() {
            return Err(SessionError::NothingSelected(missing));
        }
        for text in missing {
            self.warn(format!(
                "{text}; functions that are loaded later are covered, and `list` names the nearest"
            ));
        }
        Ok(())
    }

    /// What may be asked and changed from any thread.
    pub fn controls(&self) -> Controls {
        Controls {
            doses: Arc::clone(&self.doses),
            events: self.events.clone(),
            targets: Arc::clone(self.resolver.shared_targets()),
        }
    }

    /// Nothing that takes long is done while this is held.
    fn doses(&self) -> MutexGuard<'_, Doses> {
        // Nothing in there panics half-way: it is as good as it was.
        self.doses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells once of something that went wrong.
    pub(crate) fn warn(&mut self, warning: String) {
        if let Some(text) = self.warnings.add(warning) {
            self.events.add(Event::Warning { text });
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Links go with the covered processes; this only spares them a wait for a spin in flight.
        self.engine.switch().stop();
    }
}

/// Where the running kernel keeps what following forks and execs needs; without it they are found by looking.
fn offsets_to_follow() -> Option<TaskOffsets> {
    let offsets = TaskOffsets::usable();
    offsets.inspect_err(|error| tracing::info!("forks and execs are found by polling: {error}")).ok()
}

fn capacity(resolver: &Resolver, roots: &[(Process, Plan)], settings: &Settings) -> Capacity {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let functions: u32 = roots.iter().map(|(_, plan)| count(plan.functions.len())).sum();
    let sites: u32 = roots.iter().map(|(_, plan)| count(plan.sites.len())).sum();
    let asks_python = resolver.targets().has_kind(TargetKind::Python);
    let helpers = count(roots.iter().filter(|(_, plan)| plan.wants_helper()).count());
    let named = helpers.saturating_mul(Room::NAMED.functions);
    let of_children = if resolver.may_inject() && settings.children { late_helpers(named) } else { 0 };
    Capacity {
        policies: settings.policies.capacity(),
        sites: sites.saturating_add(LATE_SITES),
        functions: functions
            .saturating_mul(2)
            .saturating_add(LATE_FUNCTIONS)
            .saturating_add(named)
            .saturating_add(of_children),
        trampolines: if asks_python { LATE_TRAMPOLINES } else { 1 },
        python_usdt: asks_python,
    }
}

/// Bytes of the names of functions: of those that are planned in the processes and, once more, in their
/// children; and of others that appear later.
fn room_for_names(roots: &[(Process, Plan)]) -> usize {
    let planned = roots.iter().flat_map(|(_, plan)| &plan.functions);
    let planned: usize = planned.map(|function| bytes_of(&function.selected)).sum();
    planned.saturating_mul(2).saturating_add(NAMES_OF_SESSION)
}

/// Functions of helpers in children: 64 children's, if the counters of all then stay within bounds on all
/// CPUs.
fn late_helpers(named: u32) -> u32 {
    let cpus = aya::util::nr_cpus().unwrap_or(1).max(1);
    let affordable = COUNTERS_BYTES / (cpus * size_of::<FunctionStats>());
    let rest = u32::try_from(affordable).unwrap_or(u32::MAX).saturating_sub(named);
    rest.clamp(4 * Room::CHILD.functions, 64 * Room::CHILD.functions)
}
