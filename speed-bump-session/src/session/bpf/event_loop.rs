//! What a session with the BPF object waits for: ends of processes, announcements, what becomes of the
//! command, and the clock.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    future::{pending, poll_fn},
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use aya::maps::{MapData, RingBuf};
use speed_bump_abi::{Event, EventKind, PythonCodeEvent, maps::EVENTS_BYTES};
use tokio::{
    io::unix::AsyncFd,
    sync::Notify,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{BpfSession, phase::Processes};
use crate::{
    launch::{
        CommandEvent, CommandEvents, Wake,
        execs::{Executed, Executions},
    },
    sys::{
        record::read,
        watch::{watch_pidfd, watch_ring},
    },
    units::Pid,
};

/// How often perf maps are read: a function that is new is covered this much later.
const FOLLOW_EVERY: Duration = Duration::from_millis(10);

/// Where the session hears of what happens.
#[derive(Default)]
pub(super) struct Sources {
    events: Option<AsyncFd<RingBuf<MapData>>>,
    executions: Option<Executions>,
    /// What becomes of the command, if the session is of one.
    pub(super) command_events: Option<CommandEvents>,
    follow: Option<Interval>,
    /// The pidfds of the covered processes.
    pidfds: BTreeMap<Pid, AsyncFd<OwnedFd>>,
    /// Helpers came, or cannot.
    woken: Arc<Notify>,
}

/// What happened.
pub(super) enum Happened {
    /// Something became of the command; `None`: nothing more will be told.
    CommandEvent(Option<CommandEvent>),
    /// A process executed a program.
    Executed(Executed),
    /// A process ended.
    Ended(Pid),
    /// There are announcements in the ring buffer.
    Announced,
    /// A helper came, or cannot.
    HelperCame,
    /// It is time to look at what nothing announces.
    Tick,
}

impl Sources {
    /// Takes up processes that are new and lets go of those that are covered no more.
    pub(super) fn follow(&mut self, processes: &Processes) -> io::Result<()> {
        self.pidfds.retain(|pid, _| processes.get(*pid).is_some());
        for (pid, covered) in processes.iter() {
            if let Entry::Vacant(new) = self.pidfds.entry(pid) {
                new.insert(watch_pidfd(covered.process.as_fd().try_clone_to_owned()?)?);
            }
        }
        Ok(())
    }

    /// What helpers on their way call when they have come.
    pub(super) fn waker(&self) -> Wake {
        let woken = Arc::clone(&self.woken);
        Arc::new(move || woken.notify_one())
    }

    /// Waits for what happens next. Nothing is lost when this is dropped.
    pub(super) async fn next(&mut self) -> io::Result<Happened> {
        let Self { events, executions, command_events, follow, pidfds, woken } = self;
        tokio::select! {
            told = next_command_event(command_events) => Ok(Happened::CommandEvent(told)),
            executed = next_execution(executions) => Ok(Happened::Executed(executed)),
            pid = next_end(pidfds) => Ok(Happened::Ended(pid)),
            ready = readable(events) => ready.map(|()| Happened::Announced),
            () = woken.notified() => Ok(Happened::HelperCame),
            () = tick(follow) => Ok(Happened::Tick),
        }
    }
}

impl BpfSession {
    /// Registers with the event loop.
    pub(super) fn listen_to_all(&mut self) -> io::Result<()> {
        let mut follow = interval(FOLLOW_EVERY);
        follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.sources.follow = Some(follow);
        self.sources.events = self.engine.take_events().map(watch_ring).transpose()?;
        self.sources.executions = self.take_executions();
        Ok(())
    }

    pub(super) fn take_up(&mut self, happened: Happened) {
        match happened {
            Happened::CommandEvent(Some(told)) => self.told(told),
            Happened::CommandEvent(None) => self.not_followed(),
            Happened::Executed(executed) => self.caught(executed),
            Happened::Ended(pid) => {
                // What the process did last is judged while it is known.
                self.drain_events();
                self.ended(pid);
            }
            Happened::Announced => self.drain_events(),
            Happened::HelperCame => self.poll_helpers(),
            Happened::Tick => {
                self.drain_events();
                self.tick();
            }
        }
    }

    /// Takes up what the ring buffer holds, and no more than it can hold at once: processes can bring about
    /// events faster than they are taken up. What is left is for the next turn.
    pub(super) fn drain_events(&mut self) {
        let Some(mut events) = self.sources.events.take() else { return };
        for _ in 0..EVENTS_BYTES as usize / size_of::<Event>() {
            let Some(record) = events.get_mut().next() else { break };
            if let Some(event) = read::<Event>(&record) {
                self.announced(&event, || read::<PythonCodeEvent>(&record));
            }
        }
        self.sources.events = Some(events);
    }

    fn announced(&mut self, event: &Event, code: impl FnOnce() -> Option<PythonCodeEvent>) {
        let pid = |number: u32| Pid::new(number.cast_signed());
        match EventKind::from_number(event.kind) {
            Some(EventKind::Fork) => {
                if let (Some(parent), Some(child)) = (pid(event.parent), pid(event.pid)) {
                    self.forked(parent, child, event.detail != 0);
                }
            }
            Some(EventKind::Exec) => {
                if let Some(pid) = pid(event.pid) {
                    self.executed(pid);
                }
            }
            Some(EventKind::PythonCode) => {
                if let Some(record) = code() {
                    self.python_code(record.event.pid, record.event.detail, &record.key);
                }
            }
            None => tracing::debug!("unknown event {event:?} in the ring buffer"),
        }
    }
}

async fn next_command_event(command_events: &mut Option<CommandEvents>) -> Option<CommandEvent> {
    match command_events {
        Some(command_events) if !(command_events.is_closed() && command_events.is_empty()) => {
            command_events.recv().await
        }
        _ => pending().await,
    }
}

async fn next_execution(executions: &mut Option<Executions>) -> Executed {
    if let Some(executions) = executions
        && let Some(executed) = executions.recv().await
    {
        return executed;
    }
    pending().await
}

/// Waits for the end of any of them.
async fn next_end(pidfds: &BTreeMap<Pid, AsyncFd<OwnedFd>>) -> Pid {
    poll_fn(|context| {
        let ended = pidfds.iter().find(|(_, pidfd)| pidfd.poll_read_ready(context).is_ready());
        ended.map_or(Poll::Pending, |(pid, _)| Poll::Ready(*pid))
    })
    .await
}

async fn readable(events: &mut Option<AsyncFd<RingBuf<MapData>>>) -> io::Result<()> {
    match events {
        Some(events) => {
            events.readable_mut().await?.clear_ready();
            Ok(())
        }
        None => pending().await,
    }
}

async fn tick(follow: &mut Option<Interval>) {
    match follow {
        Some(follow) => {
            follow.tick().await;
        }
        None => pending().await,
    }
}
