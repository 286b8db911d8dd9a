//! The state that every session has, whatever its engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    controls::Controls,
    doses::Doses,
    events::{Event, EventLog},
    requests::Request,
    settings::Settings,
    stop::Stop,
    warnings::Warnings,
};
use crate::{
    probe::{cost::Floors, plan::Entry},
    stats::{inexact::Waited, times::Untimed},
    targets::TargetIndex,
    units::Pid,
};

/// The state that every session has, whatever its engine.
#[derive(Debug)]
pub(crate) struct State {
    /// The doses, functions and counters, which any thread may read and change.
    doses: Arc<Mutex<Doses>>,
    /// A thread holds this lock while it sets doses or changes targets.
    turn: Arc<Mutex<()>>,
    pub(super) events: EventLog,
    requests: UnboundedSender<Request>,
    /// Receives the requests. The event loop takes over this receiver.
    asked: Option<UnboundedReceiver<Request>>,
    pub(super) warnings: Warnings,
    /// Python calls whose times are in no sum, by helper.
    pub(super) untimed: BTreeMap<u32, Untimed>,
    /// Native calls whose times are in no sum.
    pub(super) native_untimed: Untimed,
    /// Why helpers missed calls, by helper.
    pub(super) missed: BTreeMap<u32, Vec<String>>,
    /// The number of calls without a pair of caller and function, by helper.
    pub(super) without_caller: BTreeMap<u32, u64>,
    /// The callers that targets name and that helpers have found, as bits.
    pub(super) callers_found: u64,
    /// The callers that native targets name and that the files of the processes contain, as bits.
    pub(super) native_callers_found: u32,
    /// Whether the helper records callers.
    pub(super) records_callers: bool,
    /// The processes that were named on the command line.
    pub(super) roots: Vec<Pid>,
    /// Every process that was ever covered.
    pub(super) pids_seen: BTreeSet<Pid>,
    pub(super) ways: BTreeMap<TargetIndex, Visibility>,
    /// Stops the session.
    pub(super) stop: Stop,
    /// The time from the attach to the first trigger.
    pub(super) start_after: Duration,
    duration: Option<Duration>,
    pub(super) started: Instant,
    pub(super) ended: Option<Instant>,
    /// What the processes waited for since the session began, if known.
    pub(super) waited: Option<Waited>,
}

/// How the calls of a target became visible, and the target's floors: the highest of all its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visibility {
    pub(super) entry: Entry,
    pub(super) floors: Floors,
}

impl State {
    pub(super) fn new(doses: Doses, settings: &Settings, stop: Stop) -> Self {
        let (requests, asked) = unbounded_channel();
        Self {
            doses: Arc::new(Mutex::new(doses)),
            turn: Arc::default(),
            events: EventLog::default(),
            requests,
            asked: Some(asked),
            warnings: Warnings::default(),
            untimed: BTreeMap::new(),
            native_untimed: Untimed::default(),
            missed: BTreeMap::new(),
            without_caller: BTreeMap::new(),
            callers_found: 0,
            native_callers_found: 0,
            records_callers: settings.callers,
            roots: Vec::new(),
            pids_seen: BTreeSet::new(),
            ways: BTreeMap::new(),
            stop,
            start_after: settings.start_after,
            duration: settings.duration,
            started: Instant::now(),
            ended: None,
            waited: None,
        }
    }

    /// Locks the doses. Do no slow work while you hold the lock.
    pub(super) fn doses(&self) -> MutexGuard<'_, Doses> {
        // No code that holds the lock can panic halfway, so the data is consistent.
        self.doses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives other threads access to the session.
    pub(super) fn controls(&self) -> Controls {
        Controls {
            doses: Arc::clone(&self.doses),
            turn: Arc::clone(&self.turn),
            events: self.events.clone(),
            requests: self.requests.clone(),
        }
    }

    /// The receiver of requests. Only the first call returns it.
    pub(super) fn take_requests(&mut self) -> Option<UnboundedReceiver<Request>> {
        self.asked.take()
    }

    /// When the session may delay the first call.
    pub(super) fn opens(&self) -> Instant {
        self.started + self.start_after
    }

    /// When the window closes, if it closes by itself.
    pub(super) fn closes(&self) -> Option<Instant> {
        self.opens().checked_add(self.duration?)
    }

    /// How long the window is open; `None` if it does not close by itself.
    pub(super) fn duration(&self) -> Option<Duration> {
        self.duration
    }

    /// The process whose PID is in reports: the first process on the command line.
    pub(super) fn root(&self) -> Pid {
        self.roots.first().copied().unwrap_or_else(Pid::own)
    }

    /// Records that the session covers a process.
    pub(super) fn covers(&mut self, pid: Pid) {
        self.pids_seen.insert(pid);
        self.events.add(Event::Covered { pid });
    }

    /// Records how a target's calls become visible, for the report.
    pub(super) fn note_entry(&mut self, target: TargetIndex, entry: Entry, floors: Floors) {
        let way = self.ways.entry(target).or_insert(Visibility { entry, floors });
        if floors.warm > way.floors.warm {
            way.entry = entry;
        }
        way.floors = way.floors.max(floors);
    }

    /// The number of calls without a pair of caller and function.
    pub(super) fn without_caller(&self) -> u64 {
        self.without_caller.values().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// The number of Python calls whose times are in no sum.
    pub(super) fn untimed(&self) -> Untimed {
        let mut all = Untimed::default();
        self.untimed.values().for_each(|untimed| all += *untimed);
        all
    }

    /// Reports a problem to the user. We report the same text only once.
    pub(super) fn warn(&mut self, warning: String) {
        if let Some(text) = self.warnings.add(warning) {
            self.events.add(Event::Warning { text });
        }
    }
}
