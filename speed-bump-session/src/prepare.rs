//! From a request to everything that a session begins with: the targets are read, costs are measured, and
//! processes get their plans. Attaches nothing.
//!
//! What there is to say on the way are [`Notice`]s: data, whose words are the caller's. What an engine cannot
//! do is refused here, before anything is touched.

pub mod bpf;
mod capabilities;
pub mod costs;
pub(crate) mod delays;
mod error;
pub mod host;
pub mod kmod;
pub mod listing;
mod look;
pub mod notice;
pub mod times;
mod unselected;

use std::{sync::Arc, time::Duration};

use crate::{
    control::client::sessions,
    engine::EngineChoice,
    policy::{DelayBound, Dose, PolicyTable},
    probe::resolve::{KnownFunctions, kinds},
    process::{Process, ProcessError},
    python::{entry_source::EntryChoice, main_file},
    session::{SessionError, Settings, handle::Handle, stop::Stop},
    targets::{Targets, source::TargetSource},
    units::{Nanos, Pid},
};
use bpf::BpfPlans;
pub use error::PrepareError;
use kmod::KmodPlan;
use notice::Notice;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the targets come from.
    pub targets: TargetSource,
    /// Whether it may be that there are none. Then what probes cost is measured first, for targets that come.
    pub allow_empty: bool,
    /// What a target gets that leaves it open.
    pub default: Dose,
    /// What each thread is delayed at most, whatever its doses are; `None`: no bound, now or later.
    pub bound: Option<DelayBound>,
    /// Who is to spin.
    pub engine: EngineChoice,
    /// How Python calls are to be seen.
    pub entry: EntryChoice,
    /// Whether the helper may be loaded into processes.
    pub inject: bool,
    /// How long a thread of a Python process may take to come to a point where it can be borrowed.
    pub inject_timeout: Duration,
    /// From the attach to the first trigger.
    pub start_after: Duration,
    /// From there to the last trigger; `None` is until stopped.
    pub duration: Option<Duration>,
    /// Whether children are covered.
    pub children: bool,
    /// Whether calls are timed, for own and cumulative times.
    pub times: bool,
    /// Whether calls can be timed later, by [`Controls::time_calls`](crate::session::controls::Controls), and
    /// native targets may come later, as in a sweep. Then what probes cost is measured first.
    pub times_later: bool,
    /// Whether it is recorded who calls whom, of Python functions whose calls are timed.
    pub callers: bool,
    /// Whether a target that selects nothing is an error.
    pub strict: bool,
    /// Whether the targets are a guess: a session then does not tell which of them select nothing.
    pub is_guess: bool,
    /// With the engine `kmod`: whether upstream's module will do.
    pub accept_upstream_module: bool,
}

impl Request {
    /// How long a thread may take to come to a point where it can be borrowed, unless told otherwise.
    pub const INJECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// Everything that can be done by itself, for these targets; calls of them are counted, and delayed where
    /// the targets say so.
    pub fn new(targets: TargetSource) -> Self {
        Self {
            targets,
            allow_empty: false,
            default: Dose { delay: Nanos(0), frequency: 1 },
            bound: None,
            engine: EngineChoice::Auto,
            entry: EntryChoice::Auto,
            inject: true,
            inject_timeout: Self::INJECT_TIMEOUT,
            start_after: Duration::ZERO,
            duration: None,
            children: true,
            times: false,
            times_later: false,
            callers: false,
            strict: false,
            is_guess: false,
            accept_upstream_module: false,
        }
    }
}

/// What is prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Attaching, which will bring helpers in where plans say so.
    Attach,
    /// Listing: helpers are brought in, look at what is loaded, and leave.
    List,
}

/// Everything that is known before anything is attached.
pub struct Prepared {
    /// What the session does, and how.
    pub settings: Settings,
    /// Targets of the request, with the kind that the files of the processes give each.
    pub targets: Arc<Targets>,
    /// What is selected, and how it is to be attached to.
    pub plans: Plans,
    /// What there is to say.
    pub notices: Vec<Notice>,
}

/// What is selected, by the engine that it is for.
pub enum Plans {
    /// For the BPF object: engines `bpf` and `signal`.
    Bpf(Box<BpfPlans>),
    /// For the kernel module.
    Kmod(Box<KmodPlan>),
}

impl Prepared {
    /// Opens the processes, reads the targets, measures what probes cost, and makes the plans.
    ///
    /// # Errors
    /// See there.
    pub fn of_processes(pids: &[Pid], request: &Request, purpose: Purpose) -> Result<Self, PrepareError> {
        Self::of_processes_knowing(pids, request, purpose, &KnownFunctions::default())
    }

    /// The same, which takes functions of files from these where they are known, and adds the others.
    ///
    /// # Errors
    /// See there.
    pub fn of_processes_knowing(
        pids: &[Pid],
        request: &Request,
        purpose: Purpose,
        known: &KnownFunctions,
    ) -> Result<Self, PrepareError> {
        capabilities::check(request, pids)?;
        let processes = open(pids)?;
        let targets = read_targets(request, &processes)?.with_main_files(&main_files(&processes));
        let (targets, policies, mut notices) = first_policies(request, targets)?;
        if purpose == Purpose::Attach {
            notices.extend(other_sessions(&processes, request.children));
        }
        let plans = if request.engine.is_kmod() {
            let process = processes.into_iter().next().ok_or(PrepareError::NoProcess)?;
            let (plan, more) = KmodPlan::prepare(process, request, &targets, purpose)?;
            notices.extend(more);
            Plans::Kmod(Box::new(plan))
        } else {
            let (plans, more) =
                BpfPlans::of_processes(processes, request, &targets, &policies, purpose, known)?;
            notices.extend(more);
            Plans::Bpf(Box::new(plans))
        };
        Ok(Self { settings: settings(request, policies), targets, plans, notices })
    }

    /// Attaches, and has the session go on on a thread of its own. `stop` stops it, from now on.
    ///
    /// # Errors
    /// Nothing is left attached.
    pub fn start(self, stop: Stop) -> Result<Handle, SessionError> {
        let Self { settings, plans, .. } = self;
        match plans {
            Plans::Bpf(plans) => plans.start(settings, stop),
            Plans::Kmod(plan) => plan.start(settings, stop),
        }
    }

    /// The processes that the session is of.
    pub fn processes(&self) -> Vec<&Process> {
        match &self.plans {
            Plans::Bpf(plans) => plans.processes.iter().map(|(process, _)| process).collect(),
            Plans::Kmod(plan) => vec![plan.process()],
        }
    }
}

/// Sessions that are of one of these processes already, or of a descendant that this one is to cover too, as
/// far as they can be asked.
fn other_sessions(processes: &[Process], children: bool) -> Vec<Notice> {
    let sessions = sessions().unwrap_or_else(|error| {
        tracing::debug!("it is not known which other sessions run: {error}");
        Vec::new()
    });
    if sessions.is_empty() {
        return Vec::new();
    }
    let mut pids: Vec<Pid> = processes.iter().map(Process::pid).collect();
    if children {
        let found = processes.iter().filter_map(|process| process.descendants().ok());
        pids.extend(found.flat_map(|found| found.processes).map(|process| process.pid()));
    }
    let shared = sessions.iter().filter_map(|(session, about)| {
        let pid = pids.iter().copied().find(|pid| about.pids.contains(&pid.get()))?;
        Some(Notice::OtherSession { pid, session: *session })
    });
    shared.collect()
}

/// More files for `__main__` than a service has scripts.
const MAIN_FILES: usize = 64;

/// Patterns for the files that the processes run, or else those that their descendants do, as under `sh -c`.
fn main_files(processes: &[Process]) -> Vec<String> {
    let mut globs: Vec<String> = Vec::new();
    for process in processes {
        let mut of_process = main_file::for_process(process);
        if of_process.is_empty() {
            let descendants = process.descendants().map(|found| found.processes).unwrap_or_default();
            of_process = descendants.iter().flat_map(main_file::for_process).collect();
        }
        for glob in of_process {
            if globs.len() < MAIN_FILES && !globs.contains(&glob) {
                globs.push(glob);
            }
        }
    }
    globs
}

/// Opens the processes, each once, in this order.
///
/// # Errors
/// One is gone, or cannot be a target.
fn open(pids: &[Pid]) -> Result<Vec<Process>, ProcessError> {
    let mut different: Vec<Pid> = Vec::with_capacity(pids.len());
    for pid in pids {
        if !different.contains(pid) {
            different.push(*pid);
        }
    }
    different.into_iter().map(Process::open).collect()
}

/// Reads the targets. The files that the processes see decide what lines without a kind are, and where
/// children are covered, those of their descendants too.
///
/// # Errors
/// A file that cannot be read, lines that are wrong, or no process.
fn read_targets(request: &Request, processes: &[Process]) -> Result<Targets, PrepareError> {
    let parsed = request.targets.read(request.allow_empty)?;
    let asks = request.children && parsed.undecided().next().is_some();
    let found = processes.iter().filter(|_| asks).filter_map(|process| process.descendants().ok());
    let descendants: Vec<Process> = found.flat_map(|found| found.processes).collect();
    kinds::decide(parsed, processes.iter().chain(&descendants)).ok_or(PrepareError::NoProcess)
}

/// The doses that targets begin with, and what there is to say of them.
fn first_policies(
    request: &Request,
    targets: Targets,
) -> Result<(Arc<Targets>, PolicyTable, Vec<Notice>), PrepareError> {
    let targets = Arc::new(targets);
    capabilities::check_targets(request.engine, &targets)?;
    times::check(request, &targets)?;
    let policies = PolicyTable::new(&targets, request.default, request.engine);
    let no_target = targets.no_target().cloned().map(Notice::NoTarget);
    let notices = no_target.into_iter().chain(times::notices(request, &targets)).collect();
    Ok((targets, policies, notices))
}

fn settings(request: &Request, policies: PolicyTable) -> Settings {
    Settings {
        policies,
        bound: request.bound,
        start_after: request.start_after,
        duration: request.duration,
        children: request.children,
        times: request.times,
        may_time: request.times || request.times_later,
        callers: request.callers,
        strict: request.strict,
        is_guess: request.is_guess,
        inject_timeout: request.inject_timeout,
    }
}
