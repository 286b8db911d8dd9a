//! The events of a session's processes, for the owner of its handle.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::ended::Ended;
use serde::Serialize;

use crate::{
    sys::clock::now,
    units::{Nanos, Pid},
};

/// The most events that we keep until someone takes them. Processes can cause any number of events.
const KEPT: usize = 4_096;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The session covers a process: from now on it counts the process's calls.
    Covered {
        /// PID of the process.
        pid: Pid,
    },
    /// A covered process executed another program. If the session also covers the new program, the next event
    /// says so.
    Replaced {
        /// PID of the process.
        pid: Pid,
    },
    /// A covered process ended.
    Gone {
        /// PID of the process.
        pid: Pid,
    },
    /// A problem that did not end the session. Each text comes only once.
    Warning {
        /// The thing, the cause, and the way out.
        text: String,
    },
    /// The session has ended, and has detached everything. This is the last event.
    Over {
        /// The reason; `None`: its event loop failed.
        why: Option<Ended>,
    },
}

/// An event, and the time when the session noticed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Happened {
    /// The time on `CLOCK_MONOTONIC`.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// The event. In JSON, its fields are beside the time.
    #[serde(flatten)]
    pub event: Event,
}

/// The events since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The events, in order.
    pub events: Vec<Happened>,
    /// How many earlier events we have dropped, because no one took them for a long time.
    pub lost: u64,
}

/// The events of a session. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Happened>,
    lost: u64,
}

impl EventLog {
    pub(super) fn add(&self, event: Event) {
        let mut queue = self.queue();
        if queue.events.len() == KEPT {
            queue.events.pop_front();
            queue.lost += 1;
        }
        queue.events.push_back(Happened { at: now(), event });
        drop(queue);
        self.0.came.notify_all();
    }

    /// Takes all events. If there are none, waits up to this long for one.
    pub(super) fn take(&self, patience: Duration) -> Events {
        let waited = self.0.came.wait_timeout_while(self.queue(), patience, |queue| queue.events.is_empty());
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Queue { events, lost } = std::mem::take(&mut *queue);
        Events { events: events.into(), lost }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn gone(pid: usize) -> Event {
        Event::Gone { pid: Pid::new(i32::try_from(pid).unwrap()).unwrap() }
    }

    #[test]
    fn the_latest_are_kept_and_the_others_counted() {
        let log = EventLog::default();
        (1..=KEPT + 3).for_each(|pid| log.add(gone(pid)));
        let Events { events, lost } = log.take(Duration::ZERO);
        assert_eq!((events.len(), lost), (KEPT, 3));
        assert_eq!(events.first().map(|first| first.event.clone()), Some(gone(4)));
        assert!(events.is_sorted_by_key(|happened| happened.at));
        assert_eq!(log.take(Duration::ZERO), Events::default());
    }

    #[test]
    fn who_waits_hears_of_the_next() {
        let log = EventLog::default();
        let adds = log.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            adds.add(gone(1));
        });
        assert_eq!(log.take(Duration::from_secs(60)).events.len(), 1);
        thread.join().unwrap();
    }
}
