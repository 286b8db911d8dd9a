//! A session with the BPF object: engines `bpf` and `signal`.
//!
//! Owns everything that is in force — the object, the links of every covered process, the followers of
//! perf maps — and drops it in an order that leaves no trace. It waits for the kernel, when probes come and
//! go, and for helpers, when it begins and ends; in between for none.

mod capacity;
mod command;
mod context;
mod cover_late;
mod decisions;
mod event_loop;
mod executed;
mod follower;
mod handshake;
mod helper_doses;
mod helpers;
mod in_place;
mod jitted;
mod late_files;
mod limits;
mod links;
mod nearest;
mod nothing_counted;
mod phase;
mod processes;
mod python;
mod renewal;
mod retarget;
mod shared_code;
mod signals;
mod sites;
mod tick;
mod timing;
mod window;

use std::{collections::HashMap, io, sync::Arc, time::Instant};

use super::{
    Session, SessionError, Settings, State,
    controls::Controls,
    doses::{Doses, Setting},
    functions::FunctionTable,
    run::{Ended, run},
    stop::Stop,
};
use crate::{
    bounds::TARGETS_EXPLAINED,
    engine::{
        Engine,
        bpf::{BpfEngine, Capacity, Hold, doses::BpfDoses},
    },
    kernel::TaskOffsets,
    presence::HelperSetup,
    probe::{
        plan::Plan,
        resolve::{Resolver, compiled},
    },
    process::Process,
    python::helper::{HelperClock, InPlace},
    stats::report::SessionReport,
    targets::TargetChange,
    units::Nanos,
};
use context::Context;
use event_loop::Sources;
use helper_doses::{HelperDoses, HelperRanges};
use helpers::{Helpers, begin::BroughtIn};
use phase::Processes;
use signals::{SessionSignals, SignalDoses};
use sites::SiteTable;
pub use tick::LOOK_FOR_PROCESSES;
use window::Window;

/// A session in force.
pub struct BpfSession {
    context: Context,
    engine: BpfEngine,
    /// Which delays are the helpers', if any can be.
    signals: Option<SessionSignals>,
    sites: SiteTable,
    exits: timing::Exits,
    processes: Processes,
    /// Whether the last of the named processes to go executed another program.
    root_was_replaced: bool,
    /// The command that we started, if that is what the session is of.
    command: Option<command::StartedCommand>,
    /// Whoever catches its children at their execs.
    catching: Option<executed::Catching>,
    /// How often a process was covered: the next index.
    coverings: u32,
    python: python::Locations,
    room: follower::Rooms,
    helpers: Helpers,
    /// What is counted by helpers that delay by themselves.
    ranges: HelperRanges,
    window: Window,
    looked: tick::Looked,
    /// Whether the kernel announces forks and execs.
    follows: bool,
    sources: Sources,
    /// What comes nearest to targets that have selected nothing, known at the end.
    nearest: Vec<String>,
}

impl BpfSession {
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
        let capacity = capacity::of_processes(&resolver, &roots, &settings);
        let mut session = Self::load(resolver, settings, capacity, follow, Hold::default(), &roots, stop)?;
        session.context.state.stop.stops(session.window.switch());
        session.context.state.roots = roots.iter().map(|(process, _)| process.pid()).collect();
        let helpers = session.bring_helpers_in(&mut roots);
        let begun = helpers.and_then(|brought_in| session.begin(roots, brought_in, follow.is_some()));
        if let Err(error) = begun {
            // So that nothing is left when we say so.
            session.detach();
            return Err(match error {
                SessionError::NothingSelected(mut lines) => {
                    lines.append(&mut session.nearest);
                    SessionError::NothingSelected(lines)
                }
                error => error,
            });
        }
        Ok(session)
    }

    /// Covers processes that have their helpers.
    fn begin(
        &mut self,
        roots: Vec<(Process, Plan)>,
        brought_in: BroughtIn,
        follows: bool,
    ) -> Result<(), SessionError> {
        let helper_is_planned = roots.iter().any(|(_, plan)| plan.wants_helper());
        if follows {
            self.engine.follow_processes()?;
            self.follows = true;
        }
        for ((process, plan), helper) in roots.into_iter().zip(brought_in.helpers) {
            self.cover(process, &plan, helper)?;
        }
        if self.context.settings.children {
            self.look_for_children();
            self.wait_for_joining();
        }
        self.tell_uncovered(brought_in.uncovered)?;
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
        stop: Stop,
    ) -> Result<Self, SessionError> {
        limits::check(&resolver, &settings, roots)?;
        let asked = stop.clone();
        resolver.explaining().ends_when({
            let asked = asked.clone();
            move || asked.times() > 0
        });
        resolver.effort().ends_when(move || asked.times() > 0);
        let (signals, limits) = handshake::choose_signals(&resolver, &settings, roots)?.unzip();
        let mut engine = BpfEngine::load(capacity, resolver.form(), follow, hold)?;
        if let Some(costs) = resolver.costs().known() {
            engine.set_coldness(costs.coldness())?;
        }
        // The window is closed until everything is attached, so that it counts from there.
        let window = Window::start(engine.switch()).map_err(SessionError::Thread)?;
        let may_inject = resolver.may_inject() || settings.policies.wants_helper();
        let setup = may_inject.then(|| HelperSetup::new(&resolver, settings.inject_timeout)).transpose();
        let mut setup = setup.map_err(|error| SessionError::Python(error.to_string()))?;
        if let (Some(setup), Some(signals)) = (&mut setup, &signals) {
            setup.signals = signals.for_helpers().into();
        }
        let in_helper = settings.policies.choice().delays_in_helper();
        if let Some(setup) = setup.as_mut().filter(|_| in_helper) {
            setup.in_place = Some(InPlace {
                clock: HelperClock::of_machine(resolver.costs().tick_ns()),
                policies: capacity.policies,
                children: settings.children,
                times: settings.times,
                callers: settings.callers,
            });
        }
        let for_ranges = in_helper.then_some(capacity::HELPERS_FUNCTIONS);
        let functions = FunctionTable::new(capacity.functions, for_ranges, capacity::room_for_names(roots));
        let bpf = BpfDoses::of(&engine);
        let doses: Box<dyn Engine> = match &signals {
            Some(signals) => Box::new(SignalDoses { bpf, signals: signals.clone() }),
            None => Box::new(bpf),
        };
        let ranges = HelperRanges::default();
        let doses = if in_helper {
            Box::new(HelperDoses { inner: doses, ranges: ranges.clone(), first: capacity.functions })
        } else {
            doses
        };
        let targets = Arc::clone(resolver.shared_targets());
        let doses = Doses::start(doses, functions, settings.policies.clone(), targets)?;
        let mut state = State::new(doses, &settings, stop);
        limits.into_iter().flatten().for_each(|limit| state.warn(limit));
        Ok(Self {
            context: Context { state, resolver, settings },
            engine,
            signals,
            sites: SiteTable::new(capacity.sites),
            exits: timing::Exits::default(),
            processes: Processes::default(),
            root_was_replaced: false,
            command: None,
            catching: None,
            coverings: 0,
            python: python::Locations::default(),
            room: follower::Rooms::default(),
            helpers: Helpers::new(setup),
            ranges,
            window,
            looked: tick::Looked::new(),
            follows: false,
            sources: Sources::default(),
            nearest: Vec::new(),
        })
    }

    /// From here on `start_after` counts.
    fn open_window(&mut self) {
        let processes = self.processes.iter().map(|(_, covered)| &covered.process);
        self.window.open(processes, &mut self.context.state);
    }

    /// Tells of Python targets that select nothing, neither among what the helpers found nor in a plan; under
    /// `strict` that ends the session. Where no helper looked for functions, it has been told before.
    fn check_selections(&mut self) -> Result<(), SessionError> {
        let mut missing = Vec::new();
        let unknown = self.helpers.asleep().map(|pid| {
            format!("; those of process {pid} are not known yet, as a thread keeps the interpreter's lock")
        });
        for (number, index) in self.context.without_functions().into_iter().enumerate() {
            let Some(target) = self.context.resolver.targets().get(index) else { continue };
            let mut processes = self.processes.iter().map(|(_, covered)| &covered.process);
            let why = (number < TARGETS_EXPLAINED)
                .then(|| {
                    processes
                        .find_map(|process| compiled(process, target, self.context.resolver.explaining()))
                })
                .flatten();
            missing.push(format!(
                "line {}: `{}` selects nothing among the functions that are loaded now{}",
                target.line,
                target.text,
                why.map(|why| format!(": {why}")).or_else(|| unknown.clone()).unwrap_or_default()
            ));
        }
        if self.context.settings.strict && !missing.is_empty() {
            missing.extend(self.unlisted().into_iter().map(str::to_owned));
            return Err(SessionError::NothingSelected(missing));
        }
        for text in missing {
            self.context.warn(format!(
                "{text}; functions that are loaded later are covered, and `list` names the nearest"
            ));
        }
        Ok(())
    }
}

/// For whoever runs it on a thread of his own; [`Handle`](super::handle::Handle) is for everybody else.
impl BpfSession {
    /// Runs until something ends it, and stays attached.
    ///
    /// # Errors
    /// The event loop failed. It needs a runtime of tokio.
    pub async fn run(&mut self) -> io::Result<Ended> {
        run(self).await
    }

    /// What may be asked and changed from any thread.
    pub fn controls(&self) -> Controls {
        self.context.state.controls()
    }

    /// What was counted so far.
    pub fn report(&self) -> SessionReport {
        Session::report(self)
    }

    /// Detaches from everything. Counters stay readable.
    pub fn detach(&mut self) {
        Session::detach(self);
    }
}

impl Session for BpfSession {
    fn state(&self) -> &State {
        &self.context.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.context.state
    }

    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError> {
        self.retarget(change)
    }

    fn listen(&mut self) -> io::Result<()> {
        self.listen_to_all()
    }

    async fn turn(&mut self) -> io::Result<Option<Ended>> {
        if !self.any_root_left() {
            return Ok(Some(if self.root_was_replaced { Ended::TargetReplaced } else { Ended::TargetGone }));
        }
        self.window.came_round();
        self.sources.follow(&self.processes)?;
        let happened = self.sources.next().await?;
        self.take_up(happened);
        Ok(None)
    }

    fn catch_up(&mut self) {
        // Calls of functions that were announced and not judged yet would be missing in the report.
        self.drain_events();
        self.tell_decisions();
        self.tell_missed_decisions();
        self.look_at_untimed();
    }

    fn detach(&mut self) {
        self.context.state.ended = Some(Instant::now());
        self.window.close();
        if let Some(waiting) = self.window.take_waiting() {
            let processes = self.processes.iter().map(|(_, covered)| &covered.process);
            let now = waiting.later(processes);
            self.context.state.waited = Some(now.since(&waiting));
            self.tell_jitted();
            self.explain_nothing(now.ran_since(&waiting));
        }
        self.catching = None;
        let began = Instant::now();
        for pid in self.processes.entering() {
            self.wait_for_entering(pid);
        }
        self.end_signals();
        self.send_helpers_away();
        let mut with_helper = None;
        for covered in self.processes.take() {
            let pid = covered.process.pid();
            self.untrack(pid);
            let program = covered.helper.id().and_then(|id| self.helpers.program(id));
            if let Some(program) = program.filter(|_| self.context.is_root(pid)) {
                with_helper.get_or_insert((covered.process, program));
            }
        }
        self.leave_stubs();
        tracing::info!("detached in {}", Nanos::from(began.elapsed()));
        let with_helper =
            with_helper.filter(|_| self.command.is_none() && self.context.state.stop.times() < 2);
        if let Some((process, program)) = with_helper {
            self.name_nearest(&process, &program);
        }
    }

    fn pending_calls(&self) -> HashMap<u32, u64> {
        self.python.pending_calls(&self.engine)
    }
}

impl Drop for BpfSession {
    fn drop(&mut self) {
        // Links go with the covered processes; this only spares them a wait for a spin in flight.
        self.window.close();
    }
}

/// Where the running kernel keeps what following forks and execs needs; without it they are found by looking.
fn offsets_to_follow() -> Option<TaskOffsets> {
    let offsets = TaskOffsets::usable();
    offsets.inspect_err(|error| tracing::info!("forks and execs are found by polling: {error}")).ok()
}
