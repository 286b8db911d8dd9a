//! Prepares a session: reads the targets, measures costs, and makes a plan for each process. Attaches
//! nothing.
//!
//! We return what the user should know as [`Notice`]s: data that the caller turns into text. If the chosen
//! engine cannot do what the user requests, we refuse the request here, before we change anything.

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

/// The user's request for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the targets come from.
    pub targets: TargetSource,
    /// Whether a session may begin without targets. If so, we measure the costs of probes first, for targets
    /// that come later.
    pub allow_empty: bool,
    /// The delay and frequency of a target whose line gives none.
    pub default: Dose,
    /// The most that any thread is delayed, whatever the doses are; `None`: no bound, now or later.
    pub bound: Option<DelayBound>,
    /// Which engine spins.
    pub engine: EngineChoice,
    /// Which entry source shows Python calls.
    pub entry: EntryChoice,
    /// Whether we may load the helper into processes.
    pub inject: bool,
    /// How long we wait until a thread of a Python process is at a point where we can borrow it.
    pub inject_timeout: Duration,
    /// The time from the attach to the first trigger.
    pub start_after: Duration,
    /// The time from the first trigger to the last one; `None`: until the session is stopped.
    pub duration: Option<Duration>,
    /// Whether the session covers children.
    pub children: bool,
    /// Whether we time calls, for own and cumulative times.
    pub times: bool,
    /// Whether someone may later let the session time calls, by
    /// [`Controls::time_calls`](crate::session::controls::Controls), and add native targets, as in a sweep.
    /// If so, we measure the costs of probes first.
    pub times_later: bool,
    /// Whether the helper records the callers of Python functions whose calls are timed.
    pub callers: bool,
    /// Whether a target that selects nothing is an error.
    pub strict: bool,
    /// Whether the targets are a guess: then the session does not report which of them select nothing.
    pub is_guess: bool,
    /// For the engine `kmod`: whether the user accepts upstream's module.
    pub accept_upstream_module: bool,
}

impl Request {
    /// The default of [`inject_timeout`](Self::inject_timeout).
    pub const INJECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// The defaults for these targets. We choose engine and entry source automatically, count calls, and
    /// delay them where the targets say so.
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

/// The purpose of the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Attaching: we load helpers later, where plans say so.
    Attach,
    /// Listing: we load helpers, which list the functions of their processes, and unload them.
    List,
}

/// Everything that we know before we attach anything.
pub struct Prepared {
    /// What the session does, and how.
    pub settings: Settings,
    /// Targets of the request, each with its kind. The files of the processes decide the kinds.
    pub targets: Arc<Targets>,
    /// The functions that targets select, and the probe sites for them.
    pub plans: Plans,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// What targets select, in the form that the engine needs.
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
    /// See [`PrepareError`].
    pub fn of_processes(pids: &[Pid], request: &Request, purpose: Purpose) -> Result<Self, PrepareError> {
        Self::of_processes_knowing(pids, request, purpose, &KnownFunctions::default())
    }

    /// Like [`of_processes`](Self::of_processes). This takes the functions of a file from `known` if they are
    /// there, and otherwise adds them.
    ///
    /// # Errors
    /// See [`PrepareError`].
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

    /// Attaches. The session then runs on a thread of its own, until someone calls `stop`.
    ///
    /// # Errors
    /// The session could not begin. Nothing stays attached.
    pub fn start(self, stop: Stop) -> Result<Handle, SessionError> {
        let Self { settings, plans, .. } = self;
        match plans {
            Plans::Bpf(plans) => plans.start(settings, stop),
            Plans::Kmod(plan) => plan.start(settings, stop),
        }
    }

    /// The processes that the session covers first.
    pub fn processes(&self) -> Vec<&Process> {
        match &self.plans {
            Plans::Bpf(plans) => plans.processes.iter().map(|(process, _)| process).collect(),
            Plans::Kmod(plan) => vec![plan.process()],
        }
    }
}

/// A notice for each running session that covers one of these processes. With `children`, this includes
/// sessions that cover one of their descendants. This leaves out sessions that do not answer.
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

/// The most files for `__main__`: more than any service has scripts.
const MAIN_FILES: usize = 64;

/// Patterns for the scripts that the processes run. If a process runs no script (such as `sh -c`), we take
/// the scripts of its descendants.
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

/// Opens the processes in this order, each once.
///
/// # Errors
/// A process is gone, or cannot be a target.
fn open(pids: &[Pid]) -> Result<Vec<Process>, ProcessError> {
    let mut different: Vec<Pid> = Vec::with_capacity(pids.len());
    for pid in pids {
        if !different.contains(pid) {
            different.push(*pid);
        }
    }
    different.into_iter().map(Process::open).collect()
}

/// Reads the targets. If a line names no kind, the mapped files of the processes decide its kind. If the
/// session covers children, the files of descendants count too.
///
/// # Errors
/// We cannot read a file, lines are wrong, or there is no process.
fn read_targets(request: &Request, processes: &[Process]) -> Result<Targets, PrepareError> {
    let parsed = request.targets.read(request.allow_empty)?;
    let asks = request.children && parsed.undecided().next().is_some();
    let found = processes.iter().filter(|_| asks).filter_map(|process| process.descendants().ok());
    let descendants: Vec<Process> = found.flat_map(|found| found.processes).collect();
    kinds::decide(parsed, processes.iter().chain(&descendants)).ok_or(PrepareError::NoProcess)
}

/// The first doses of the targets, and notices about the targets.
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
