//! What every session has, whatever its engine.

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

/// What every session has, whatever its engine.
#[derive(Debug)]
pub(crate) struct State {
    /// What may be asked and changed from outside: doses, functions and counters.
    doses: Arc<Mutex<Doses>>,
    /// Held while doses are set or targets change.
    turn: Arc<Mutex<()>>,
    pub(super) events: EventLog,
    requests: UnboundedSender<Request>,
    /// Receives the requests, until the event loop takes it over.
    asked: Option<UnboundedReceiver<Request>>,
    pub(super) warnings: Warnings,
    /// Calls whose time is in no sum, by the helper that reports them.
    pub(super) untimed: BTreeMap<u32, Untimed>,
    /// The same for native functions.
    pub(super) native_untimed: Untimed,
    /// Why calls were missed, by helper.
    pub(super) missed: BTreeMap<u32, Vec<String>>,
    /// Calls whose caller is in no pair, by the helper that reports them.
    pub(super) without_caller: BTreeMap<u32, u64>,
    /// The bits of the callers that targets name and that helpers have found.
    pub(super) callers_found: u64,
    /// The same for native targets, in the files of the processes.
    pub(super) native_callers_found: u32,
    /// Whether it is recorded who calls whom.
    pub(super) records_callers: bool,
    /// The processes that were named on the command line.
    pub(super) roots: Vec<Pid>,
    /// Every process that was covered.
    pub(super) pids_seen: BTreeSet<Pid>,
    pub(super) ways: BTreeMap<TargetIndex, Visibility>,
    /// Stops the session.
    pub(super) stop: Stop,
    /// From the attach to the first trigger.
    pub(super) start_after: Duration,
    duration: Option<Duration>,
    pub(super) started: Instant,
    pub(super) ended: Option<Instant>,
    /// What was waited for since it began, where that is known.
    pub(super) waited: Option<Waited>,
}

/// How the calls of a target became visible, and at what cost: the highest of all its functions.
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

    /// No slow work is done while this is held.
    pub(super) fn doses(&self) -> MutexGuard<'_, Doses> {
        // No code that holds the lock can panic halfway, so its content is sound.
        self.doses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Access to what any thread may ask and change.
    pub(super) fn controls(&self) -> Controls {
        Controls {
            doses: Arc::clone(&self.doses),
            turn: Arc::clone(&self.turn),
            events: self.events.clone(),
            requests: self.requests.clone(),
        }
    }

    /// The receiver of requests; only the first caller gets it.
    pub(super) fn take_requests(&mut self) -> Option<UnboundedReceiver<Request>> {
        self.asked.take()
    }

    /// When calls are delayed for the first time.
    pub(super) fn opens(&self) -> Instant {
        self.started + self.start_after
    }

    /// When the window closes, if it does.
    pub(super) fn closes(&self) -> Option<Instant> {
        self.opens().checked_add(self.duration?)
    }

    /// How long the window is open, if it closes.
    pub(super) fn duration(&self) -> Option<Duration> {
        self.duration
    }

    /// The process that reports name.
    pub(super) fn root(&self) -> Pid {
        self.roots.first().copied().unwrap_or_else(Pid::own)
    }

    /// Records that a process is covered.
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

    /// Calls whose caller is in no pair.
    pub(super) fn without_caller(&self) -> u64 {
        self.without_caller.values().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// Calls whose time is in no sum.
    pub(super) fn untimed(&self) -> Untimed {
        let mut all = Untimed::default();
        self.untimed.values().for_each(|untimed| all += *untimed);
        all
    }

    /// Reports something that went wrong, once.
    pub(super) fn warn(&mut self, warning: String) {
        if let Some(text) = self.warnings.add(warning) {
            self.events.add(Event::Warning { text });
        }
    }
}
