//! A session with the engines `bpf`, `signal` and `helper`, and its processes.
//!
//! The session owns everything that is attached: each covered process with its links, and the engines that
//! count and delay there. The session drops these in an order that leaves nothing behind. The session waits
//! for the kernel when it adds or removes probes, and for helpers when it begins and ends. Apart from that it
//! waits for nothing. In between, the session's event loop handles events.

mod announcements;
mod begin;
mod callers;
mod capacity;
mod command;
mod context;
mod cover_late;
mod coverage;
mod decisions;
mod engines;
mod entering;
mod event_loop;
mod executed;
mod follower;
mod following;
mod handshake;
mod helper_doses;
mod helpers;
mod in_place;
mod jitted;
mod joining;
mod late_files;
mod leaving;
mod limits;
mod links;
mod loading;
mod locations;
mod nearest;
mod nothing_counted;
mod perf_maps;
mod phase;
mod polling;
mod probes;
mod renewal;
mod retarget;
mod retime;
mod rooms;
mod selections;
mod shared_code;
mod signals;
mod sites;
mod tick;
mod timing;
mod window;

use std::{collections::HashMap, io};

use super::{
    controls::Controls,
    doses::Setting,
    error::SessionError,
    interface::Session,
    run::{Ended, run},
    settings::Settings,
    state::State,
    stop::Stop,
    told::ToldHelpers,
};
use crate::{
    engine::bpf::Hold,
    launch::{
        CommandEvents, DetachRequest,
        execs::{self, Execs, Executions},
    },
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
    stats::report::SessionReport,
    targets::TargetChange,
    units::Pid,
};
use begin::{bring_helpers_in, tell_uncovered};
use command::StartedCommand;
use coverage::Coverage;
use event_loop::{Happened, Sources};
use loading::{Object, load, needs_object, offsets_to_follow};
pub use tick::LOOK_FOR_PROCESSES;
use tick::{Checks, look_for_children};

/// A running session.
pub struct BpfSession {
    /// Catches children of a command when they execute programs, until this value is dropped.
    catching: Option<Execs>,
    /// Receives the caught processes. The event loop takes over this receiver.
    executions: Option<Executions>,
    coverage: Coverage,
    checks: Checks,
    sources: Sources,
}

impl BpfSession {
    /// Attaches to these processes. Each comes with its plan. When this returns, we count every call; we
    /// delay calls after `start_after`. From now on, `stop` stops the session.
    ///
    /// # Errors
    /// The session could not begin. Nothing stays attached.
    pub fn start(
        resolver: Resolver,
        settings: Settings,
        roots: Vec<(Process, Plan)>,
        stop: Stop,
    ) -> Result<Self, SessionError> {
        in_place::check_reach(&resolver, &roots)?;
        let object = needs_object(&resolver, &settings, &roots).then(|| {
            let capacity = capacity::of_processes(&resolver, &roots, &settings);
            Object { capacity, follow: offsets_to_follow(), hold: Hold::default() }
        });
        let follows = object.is_some_and(|object| object.follow.is_some());
        let sources = Sources::default();
        let mut coverage = load(resolver, settings, object, &roots, stop, sources.waker())?;
        coverage.context.state.stop.stops(coverage.engines.window.switch());
        coverage.context.state.roots = roots.iter().map(|(process, _)| process.pid()).collect();
        let mut session =
            Self { catching: None, executions: None, coverage, checks: Checks::new(false), sources };
        if let Err(error) = session.begin(roots, follows) {
            // Detaches first. So nothing is attached any more when the caller gets the error.
            let mut nearest = session.leave();
            return Err(match error {
                SessionError::NothingSelected(mut lines) => {
                    lines.append(&mut nearest);
                    SessionError::NothingSelected(lines)
                }
                error => error,
            });
        }
        Ok(session)
    }

    /// Loads the helpers, and covers the processes.
    fn begin(&mut self, mut roots: Vec<(Process, Plan)>, follows: bool) -> Result<(), SessionError> {
        let coverage = &mut self.coverage;
        let brought_in = bring_helpers_in(&mut roots, &mut coverage.engines, &mut coverage.context)?;
        let helper_is_planned = roots.iter().any(|(_, plan)| plan.wants_helper());
        if follows {
            self.follow_processes()?;
        }
        let coverage = &mut self.coverage;
        for ((process, plan), helper) in roots.into_iter().zip(brought_in.helpers) {
            coverage.cover(process, &plan, helper)?;
        }
        if coverage.context.settings.children {
            look_for_children(coverage);
            polling::wait_for_joining(coverage);
        }
        tell_uncovered(brought_in.uncovered, &coverage.processes, &mut coverage.context)?;
        let Coverage { context, processes, engines } = coverage;
        if helper_is_planned || engines.helpers.are_any() {
            selections::check(&engines.helpers, processes, context)?;
        }
        coverage.open_window();
        Ok(())
    }

    /// Makes the kernel announce forks and execs.
    fn follow_processes(&mut self) -> Result<(), SessionError> {
        if let Some(probes) = &mut self.coverage.engines.probes {
            probes.engine.follow_processes()?;
            self.checks.are_announced = true;
        }
        Ok(())
    }
}

/// The session of a command that we start. The session covers each program of the command before its first
/// instruction.
impl BpfSession {
    /// Prepares everything for a command that has not been started. [`expect`](Self::expect) then waits for
    /// it.
    ///
    /// # Errors
    /// We could not prepare the session. Nothing is left behind.
    pub fn prepare(resolver: Resolver, settings: Settings) -> Result<Self, SessionError> {
        let follow = offsets_to_follow();
        let capacity = capacity::of_command(&resolver, &settings);
        // We need to hold only CPython at its start, so that we can load the helper.
        let may_inject = resolver.may_inject() || settings.policies.wants_helper();
        let catches = follow.is_some() && settings.children && may_inject;
        let hold = if catches { execs::hold() } else { Hold::default() };
        let object = Object { capacity, follow, hold };
        let sources = Sources::default();
        let coverage = load(resolver, settings, Some(object), &[], Stop::default(), sources.waker())?;
        let mut session =
            Self { catching: None, executions: None, coverage, checks: Checks::new(false), sources };
        if catches {
            session.catch_execs()?;
        }
        if follow.is_some() {
            session.follow_processes()?;
        }
        Ok(session)
    }

    /// Begins to catch processes when they execute programs.
    fn catch_execs(&mut self) -> Result<(), SessionError> {
        let probes = self.coverage.engines.probes.as_mut();
        let Some(held) = probes.and_then(|probes| probes.engine.take_held()) else { return Ok(()) };
        let (execs, executions) = Execs::start(held).map_err(SessionError::Thread)?;
        (self.catching, self.executions) = (Some(execs), Some(executions));
        self.coverage.processes.are_caught = true;
        Ok(())
    }

    /// Waits for the first program of the command, and covers it.
    ///
    /// # Errors
    /// The command has ended, or the session can cover nothing.
    pub fn expect(
        &mut self,
        pid: Pid,
        mut command_events: CommandEvents,
        detach: DetachRequest,
    ) -> Result<(), SessionError> {
        if let Some(execs) = &self.catching {
            execs.set_command(pid);
        }
        let coverage = &mut self.coverage;
        coverage.context.state.roots = vec![pid];
        coverage.processes.command = Some(StartedCommand::new(pid, detach));
        executed::told(command_events.blocking_recv(), coverage);
        self.sources.command_events = Some(command_events);
        polling::wait_for_entering(pid, coverage);
        coverage.open_window_of(pid);
        Ok(())
    }

    /// At the end, reports why targets have selected nothing.
    pub fn tell_unselected(&mut self) {
        let report = self.report();
        selections::tell_unselected(&report, &mut self.coverage.context);
    }
}

/// For callers that run the session on their own thread. All others use [`Handle`](super::handle::Handle).
impl BpfSession {
    /// Runs until something ends the session. Does not detach.
    ///
    /// # Errors
    /// The event loop failed, for example because there is no tokio runtime.
    pub async fn run(&mut self) -> io::Result<Ended> {
        run(self).await
    }

    /// Reads and changes the session from any thread.
    pub fn controls(&self) -> Controls {
        self.state().controls()
    }

    /// The counts so far.
    pub fn report(&self) -> SessionReport {
        Session::report(self)
    }

    /// Detaches from everything. Counters stay readable.
    pub fn detach(&mut self) {
        Session::detach(self);
    }

    /// Handles an event.
    fn take_up(&mut self, happened: Happened) {
        match happened {
            Happened::CommandEvent(told) => executed::told(told, &mut self.coverage),
            Happened::Executed(executed) => executed::caught(executed, &mut self.coverage),
            Happened::Ended(pid) => {
                // The process's last events need its state, so we handle them first.
                self.drain_events();
                self.coverage.ended(pid);
            }
            Happened::Announced => self.drain_events(),
            Happened::HelperCame => polling::poll_helpers(&mut self.coverage),
            Happened::Tick => {
                self.drain_events();
                self.checks.tick(&mut self.coverage);
            }
        }
    }

    fn drain_events(&mut self) {
        if let Some(events) = self.sources.events() {
            announcements::drain(events, &mut self.coverage);
        }
    }

    /// Detaches from everything. Returns messages about targets that have selected nothing, with the closest
    /// names.
    fn leave(&mut self) -> Vec<String> {
        leaving::close(&mut self.coverage);
        self.coverage.processes.are_caught = false;
        self.catching = None;
        // When the event about a held program is dropped, the program goes on.
        self.executions = None;
        self.sources.close();
        leaving::leave(&mut self.coverage)
    }
}

impl Session for BpfSession {
    fn state(&self) -> &State {
        &self.coverage.context.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.coverage.context.state
    }

    fn processes(&self) -> Vec<&Process> {
        self.coverage.processes.all()
    }

    fn change_targets(&mut self, change: &TargetChange) -> Result<Setting, SessionError> {
        retarget::retarget(change, &mut self.coverage)
    }

    fn time_calls(&mut self, on: bool) -> Result<ToldHelpers, SessionError> {
        retime::time_calls(on, &mut self.coverage)
    }

    fn hear_helpers(&mut self) {
        polling::poll_helpers(&mut self.coverage);
    }

    fn listen(&mut self) -> io::Result<()> {
        let probes = self.coverage.engines.probes.as_mut();
        let events = probes.and_then(|probes| probes.engine.take_events());
        self.sources.listen(events, self.executions.take())
    }

    async fn turn(&mut self) -> io::Result<Option<Ended>> {
        let Coverage { context, processes, engines } = &self.coverage;
        if !context.state.roots.iter().any(|pid| processes.has(*pid)) {
            let was_replaced = processes.root_was_replaced;
            return Ok(Some(if was_replaced { Ended::TargetReplaced } else { Ended::TargetGone }));
        }
        engines.window.came_round();
        self.sources.follow(processes)?;
        let happened = self.sources.next().await?;
        self.take_up(happened);
        Ok(None)
    }

    fn catch_up(&mut self) {
        // Otherwise the report would lack calls of functions that BPF programs have announced and we have not
        // handled.
        self.drain_events();
        self.checks.catch_up(&mut self.coverage);
    }

    fn detach(&mut self) {
        self.leave();
    }

    fn pending_calls(&self) -> HashMap<u32, u64> {
        self.coverage.engines.pending_calls()
    }
}

impl Drop for BpfSession {
    fn drop(&mut self) {
        // When the covered processes are dropped, their links are dropped, too. We close the window here, so
        // that this need not wait for a delay in progress.
        self.coverage.engines.window.close();
    }
}
