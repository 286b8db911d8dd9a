//! The events for which a session with the BPF object waits: ends of processes, announcements, events of the
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
use tokio::{
    io::unix::AsyncFd,
    sync::Notify,
    time::{Interval, MissedTickBehavior, interval},
};

use super::phase::Processes;
use crate::{
    launch::{
        CommandEvent, CommandEvents, Wake,
        execs::{Executed, Executions},
    },
    sys::watch::{watch_pidfd, watch_ring},
    units::Pid,
};

/// How often we read perf maps. So a new function waits at most this long until the session covers it.
const FOLLOW_EVERY: Duration = Duration::from_millis(10);

/// The sources of a session's events.
#[derive(Default)]
pub(super) struct Sources {
    events: Option<AsyncFd<RingBuf<MapData>>>,
    executions: Option<Executions>,
    /// Events of the command, if the session started one.
    pub(super) command_events: Option<CommandEvents>,
    follow: Option<Interval>,
    /// The pidfds of the covered processes.
    pidfds: BTreeMap<Pid, AsyncFd<OwnedFd>>,
    /// This is notified when a helper has been loaded, or has failed to load.
    woken: Arc<Notify>,
}

/// An event.
pub(super) enum Happened {
    /// An event of the command. `None` means that there will be no more.
    CommandEvent(Option<CommandEvent>),
    /// A process executed a program.
    Executed(Executed),
    /// A process ended.
    Ended(Pid),
    /// There are announcements in the ring buffer.
    Announced,
    /// A helper has been loaded, or has failed to load.
    HelperCame,
    /// It is time for the periodic checks. These look for changes that nobody announces.
    Tick,
}

impl Sources {
    /// Makes the event loop wait for announcements, execs and the clock.
    ///
    /// # Errors
    /// The event loop accepts no more sources.
    pub(super) fn listen(
        &mut self,
        events: Option<RingBuf<MapData>>,
        executions: Option<Executions>,
    ) -> io::Result<()> {
        let mut follow = interval(FOLLOW_EVERY);
        follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.follow = Some(follow);
        self.events = events.map(watch_ring).transpose()?;
        self.executions = executions;
        Ok(())
    }

    /// Receives no more execs. Programs that were received and not handled go on, and so do later programs.
    pub(super) fn close(&mut self) {
        self.executions = None;
        self.command_events = None;
    }

    /// The announcements that the session has not handled.
    pub(super) fn events(&mut self) -> Option<&mut RingBuf<MapData>> {
        self.events.as_mut().map(AsyncFd::get_mut)
    }

    /// Waits for the ends of new processes, too. Stops waiting for the ends of processes that the session no
    /// longer covers.
    pub(super) fn follow(&mut self, processes: &Processes) -> io::Result<()> {
        self.pidfds.retain(|pid, _| processes.get(*pid).is_some());
        for (pid, covered) in processes.iter() {
            if let Entry::Vacant(new) = self.pidfds.entry(pid) {
                new.insert(watch_pidfd(covered.process.as_fd().try_clone_to_owned()?)?);
            }
        }
        Ok(())
    }

    /// A function that a helper's loading calls when it is done.
    pub(super) fn waker(&self) -> Wake {
        let woken = Arc::clone(&self.woken);
        Arc::new(move || woken.notify_one())
    }

    /// Waits for the next event. No event is lost if the future is dropped.
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

/// Waits until one of the processes ends.
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
