//! From a request to everything that a session begins with: the targets are read, costs are measured, and
//! processes get their plans. Attaches nothing.
//!
//! What there is to say on the way are [`Notice`]s: data, whose words are the caller's.

pub mod delays;
mod error;
pub mod listing;
mod look;
pub mod notice;
mod unselected;

use std::{fs::File, path::Path, sync::Arc, time::Duration};

use crate::{
    calibrate::Calibration,
    control::client::sessions,
    elf::ElfFile,
    engine::{EngineChoice, EngineKind},
    kernel::{AttachBy, KernelFacts, Privileges},
    policy::{Dose, PolicyTable},
    probe::{plan::Plan, resolve::Resolver},
    process::{Process, ProcessError},
    python::entry_source::EntryChoice,
    session::{Session, SessionError, Settings, handle::Handle, stop::Stop},
    targets::{Reading, Targets, TargetsError, source::TargetSource},
    units::{Nanos, Pid},
};
pub use error::PrepareError;
use look::Planned;
use notice::Notice;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the targets come from.
    pub targets: TargetSource,
    /// Whether it may be that there are none.
    pub allow_empty: bool,
    /// What a target gets that leaves it open.
    pub default: Dose,
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
    /// Whether a target that selects nothing is an error.
    pub strict: bool,
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
            engine: EngineChoice::Auto,
            entry: EntryChoice::Auto,
            inject: true,
            inject_timeout: Self::INJECT_TIMEOUT,
            start_after: Duration::ZERO,
            duration: None,
            children: true,
            strict: false,
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
    /// Resolves further processes: children that exec.
    pub resolver: Resolver,
    /// What the session does, and how.
    pub settings: Settings,
    /// The processes, each with what is selected in it. None for a command that is yet to be started.
    pub processes: Vec<(Process, Plan)>,
    /// Whether descendants of those have Python functions that can be made visible, as far as those were
    /// looked at.
    pub python_in_children: bool,
    /// What there is to say.
    pub notices: Vec<Notice>,
}

impl Prepared {
    /// Opens the processes, reads the targets, measures what probes cost, and makes the plans.
    ///
    /// # Errors
    /// See there.
    pub fn of_processes(pids: &[Pid], request: &Request, purpose: Purpose) -> Result<Self, PrepareError> {
        let processes = open(pids)?;
        let is_elf = |path: &str| {
            processes.iter().any(|process| {
                let file = process.open_file(Path::new(path));
                file.is_ok_and(|file| ElfFile::from_file(file, path).is_ok())
            })
        };
        let (resolver, policies, mut notices) = resolver(request, &is_elf)?;
        if purpose == Purpose::Attach {
            notices.extend(other_sessions(&processes));
        }
        let mut planned = Vec::with_capacity(processes.len());
        for process in processes {
            let plan = resolver.plan(&process)?;
            let mut process = Planned::new(process, plan);
            if purpose == Purpose::List && process.plan.wants_helper() {
                notices.extend(process.look_inside(request.inject_timeout, &resolver)?);
            }
            planned.push(process);
        }
        let named = planned.len();
        if request.children && unselected::is_any(&resolver, &planned, purpose) {
            notices.extend(add_descendants(request, &resolver, &mut planned, purpose));
        }
        notices.extend(unselected::notices(request.strict, &resolver, &planned, purpose)?);
        let python_in_children = planned.iter().skip(named).any(|of| of.plan.has_python());
        if purpose == Purpose::Attach {
            // The session looks for them when it begins.
            planned.truncate(named);
        }
        notices.extend(delays::notices(&policies, &resolver, &planned));
        let processes = planned.into_iter().map(|planned| (planned.process, planned.plan)).collect();
        let settings = settings(request, policies);
        Ok(Self { resolver, settings, processes, python_in_children, notices })
    }

    /// The same for a command that is yet to be started: what can be known without a process.
    ///
    /// # Errors
    /// See there.
    pub fn of_command(request: &Request) -> Result<Self, PrepareError> {
        // The command begins in our own root directory.
        let is_elf = |path: &str| File::open(path).is_ok_and(|file| ElfFile::from_file(file, path).is_ok());
        let (resolver, policies, mut notices) = resolver(request, &is_elf)?;
        notices.extend(delays::notices(&policies, &resolver, &[]));
        let settings = settings(request, policies);
        Ok(Self { resolver, settings, processes: Vec::new(), python_in_children: false, notices })
    }

    /// Attaches, and has the session go on on a thread of its own. `stop` stops it, from now on.
    ///
    /// # Errors
    /// Nothing is left attached.
    pub fn start(self, stop: Stop) -> Result<Handle, SessionError> {
        Session::spawn(self.resolver, self.settings, self.processes, stop)
    }

    /// Who will spin a delay in a process with this plan.
    pub fn engine(&self, delay: Nanos, plan: &Plan) -> EngineKind {
        delays::engine(&self.settings.policies, delay, plan, self.resolver.calibration())
    }
}

/// Adds the descendants, which a session would cover too. Those that are gone, or let nobody look, are left
/// out.
fn add_descendants(
    request: &Request,
    resolver: &Resolver,
    planned: &mut Vec<Planned>,
    purpose: Purpose,
) -> Vec<Notice> {
    let mut notices = Vec::new();
    let found = planned.iter().filter_map(|of| of.process.descendants().ok());
    let descendants: Vec<Process> = found.flat_map(|found| found.processes).collect();
    for process in descendants {
        let pid = process.pid();
        if planned.iter().any(|of| of.process.pid() == pid) {
            continue;
        }
        let add = || {
            let plan = resolver.plan(&process)?;
            let mut of = Planned::new(process, plan);
            if purpose == Purpose::List && of.plan.wants_helper() {
                notices.extend(of.look_inside(request.inject_timeout, resolver)?);
            }
            planned.push(of);
            Ok::<_, ProcessError>(())
        };
        if let Err(error) = add() {
            tracing::debug!("descendant {pid} is left out: {error}");
        }
    }
    notices
}

/// Sessions that are of one of these processes already, as far as they can be asked.
fn other_sessions(processes: &[Process]) -> Vec<Notice> {
    let sessions = sessions().unwrap_or_else(|error| {
        tracing::debug!("it is not known which other sessions run: {error}");
        Vec::new()
    });
    let mut notices = Vec::new();
    for process in processes {
        let pid = process.pid();
        let of_it = sessions.iter().filter(|(_, about)| about.pids.contains(&pid.get()));
        notices.extend(of_it.map(|(session, _)| Notice::OtherSession { pid, session: *session }));
    }
    notices
}

/// Opens the processes, each once, in this order.
///
/// # Errors
/// One is gone, or cannot be a target.
pub fn open(pids: &[Pid]) -> Result<Vec<Process>, ProcessError> {
    let mut different: Vec<Pid> = Vec::with_capacity(pids.len());
    for pid in pids {
        if !different.contains(pid) {
            different.push(*pid);
        }
    }
    different.into_iter().map(Process::open).collect()
}

/// Reads the targets.
///
/// # Errors
/// A file that cannot be read, or lines that are wrong.
pub fn read_targets(request: &Request, is_elf: &dyn Fn(&str) -> bool) -> Result<Targets, TargetsError> {
    request.targets.read(Reading { is_elf, allow_empty: request.allow_empty })
}

/// Refuses to go on without what every attach needs. Returns what is known of the kernel.
///
/// # Errors
/// A privilege is missing, or the kernel lacks something.
pub fn check_privileges() -> Result<KernelFacts, PrepareError> {
    let privileges = Privileges::read()?;
    let facts = KernelFacts::read();
    let by = if facts.has_uprobe_multi_pid() { AttachBy::UprobeMulti } else { AttachBy::PerfEvent };
    privileges.require(by)?;
    facts.require()?;
    Ok(facts)
}

fn resolver(
    request: &Request,
    is_elf: &dyn Fn(&str) -> bool,
) -> Result<(Resolver, PolicyTable, Vec<Notice>), PrepareError> {
    if request.engine.is_kmod() {
        return Err(PrepareError::Kmod);
    }
    let targets = Arc::new(read_targets(request, is_elf)?);
    let kernel = check_privileges()?;
    let mut calibration = Calibration::measure(&kernel)?;
    let policies = PolicyTable::new(&targets, request.default, request.engine);
    delays::measure_signals(request.inject, &targets, &policies, &mut calibration)?;
    let calibration = Arc::new(calibration);
    let notices = targets.no_target().cloned().map(Notice::NoTarget).into_iter().collect();
    Ok((Resolver::new(targets, calibration, request.entry, request.inject), policies, notices))
}

fn settings(request: &Request, policies: PolicyTable) -> Settings {
    Settings {
        policies,
        start_after: request.start_after,
        duration: request.duration,
        children: request.children,
        strict: request.strict,
        inject_timeout: request.inject_timeout,
    }
}
