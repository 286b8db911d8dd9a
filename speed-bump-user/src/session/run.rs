//! The one event loop of a session: signals, ends of processes, announcements, timers.

use std::{
    collections::BTreeMap,
    future::{pending, poll_fn},
    os::fd::{AsFd as _, OwnedFd},
    task::Poll,
    time::{Duration, Instant},
};

use aya::maps::{MapData, RingBuf};
use speed_bump_abi::{Event, EventKind, PythonCodeEvent, maps::EVENTS_BYTES};
use tokio::{
    io::unix::AsyncFd,
    signal::unix::{Signal, SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep_until},
};

use crate::{
    launch::{
        News, Told,
        execs::{Executed, Executions},
    },
    session::Session,
    sys::{
        record::read,
        watch::{watch_pidfd, watch_ring},
    },
    units::Pid,
};

/// How often perf maps are read: a function that is new is covered this much later.
const FOLLOW_EVERY: Duration = Duration::from_millis(10);

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The window of `--duration` closed.
    Elapsed,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal(&'static str),
    /// Every process that was named on the command line ended or replaced its image.
    TargetGone,
}

/// What else a session listens to.
#[derive(Debug)]
pub enum Listen {
    /// The signals that end it, since before the attach.
    To(Signals),
    /// What becomes of the command that it is of. Signals are for that.
    ToCommand(News),
}

/// Runs the session until something ends it. `show` is called every `show_every`, to refresh what people see.
///
/// # Errors
/// The event loop itself could not be set up.
pub async fn run(
    session: &mut Session,
    mut listen: Listen,
    show_every: Option<Duration>,
    mut show: impl FnMut(&mut Session),
) -> std::io::Result<Ended> {
    let mut events = session.engine.take_events().map(watch_ring).transpose()?;
    let mut executions = session.take_executions();
    let ends = session.ends();
    let mut follow = interval(FOLLOW_EVERY);
    follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refresh = show_every.map(interval);

    let mut watched = Watched::default();

    let ended = loop {
        if !session.any_root_left() {
            break Ended::TargetGone;
        }
        watched.follow(session)?;
        tokio::select! {
            heard = listen.next() => match heard {
                Heard::Signal(name) => break Ended::Signal(name),
                Heard::Command(Some(told)) => session.told(told),
                Heard::Command(None) => session.not_followed(),
            },
            executed = next_execution(&mut executions) => session.caught(executed),
            () = until(ends) => break Ended::Elapsed,
            pid = watched.next_end() => {
                // What the process did last is judged while it is known.
                drain(&mut events, session);
                session.ended(pid);
            }
            ready = readable(&mut events) => {
                ready?;
                drain(&mut events, session);
            }
            _ = follow.tick() => {
                drain(&mut events, session);
                session.tick();
            }
            () = tick(&mut refresh) => show(session),
        }
    };
    // Calls of functions that were announced and not judged yet would be missing in the report.
    drain(&mut events, session);
    Ok(ended)
}

/// What was listened to.
enum Heard {
    Signal(&'static str),
    /// `None`: there will be nothing more.
    Command(Option<Told>),
}

impl Listen {
    async fn next(&mut self) -> Heard {
        match self {
            Self::To(signals) => Heard::Signal(signals.next().await),
            Self::ToCommand(news) if news.is_closed() && news.is_empty() => pending().await,
            Self::ToCommand(news) => Heard::Command(news.recv().await),
        }
    }
}

/// Takes up what the ring buffer holds, and no more than it can hold at once: processes can bring about
/// events faster than they are taken up. What is left is for the next turn.
fn drain(events: &mut Option<AsyncFd<RingBuf<MapData>>>, session: &mut Session) {
    let Some(events) = events else { return };
    let events = events.get_mut();
    for _ in 0..EVENTS_BYTES as usize / size_of::<Event>() {
        let Some(record) = events.next() else { return };
        let Some(event) = read::<Event>(&record) else { continue };
        let pid = |number: u32| Pid::new(number.cast_signed());
        match EventKind::from_number(event.kind) {
            Some(EventKind::Fork) => {
                if let (Some(parent), Some(child)) = (pid(event.parent), pid(event.pid)) {
                    session.forked(parent, child, event.detail != 0);
                }
            }
            Some(EventKind::Exec) => {
                if let Some(pid) = pid(event.pid) {
                    session.executed(pid);
                }
            }
            Some(EventKind::PythonCode) => {
                if let Some(record) = read::<PythonCodeEvent>(&record) {
                    session.python_code(record.event.pid, record.event.detail, &record.key);
                }
            }
            None => tracing::debug!("unknown event {event:?} in the ring buffer"),
        }
    }
}

async fn readable(events: &mut Option<AsyncFd<RingBuf<MapData>>>) -> std::io::Result<()> {
    match events {
        Some(events) => {
            events.readable_mut().await?.clear_ready();
            Ok(())
        }
        None => pending().await,
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

/// Waits for that moment, for ever without one.
pub(super) async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end.into()).await,
        None => pending().await,
    }
}

/// Waits for the next turn, for ever without an interval.
pub(super) async fn tick(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => pending().await,
    }
}

/// The pidfds of the covered processes, registered with the event loop.
#[derive(Default)]
struct Watched {
    pidfds: BTreeMap<Pid, AsyncFd<OwnedFd>>,
}

impl Watched {
    /// Takes up processes that are new and lets go of those that are covered no more.
    fn follow(&mut self, session: &Session) -> std::io::Result<()> {
        self.pidfds.retain(|pid, _| session.covered.contains_key(pid));
        for (pid, covered) in &session.covered {
            if !self.pidfds.contains_key(pid) {
                let pidfd = covered.process.as_fd().try_clone_to_owned()?;
                self.pidfds.insert(*pid, watch_pidfd(pidfd)?);
            }
        }
        Ok(())
    }

    /// Waits for the end of any of them.
    async fn next_end(&self) -> Pid {
        poll_fn(|context| {
            let ended = self.pidfds.iter().find(|(_, pidfd)| pidfd.poll_read_ready(context).is_ready());
            ended.map_or(Poll::Pending, |(pid, _)| Poll::Ready(*pid))
        })
        .await
    }
}

/// The signals that end a session. From its creation on they end the process no more, and none is lost.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to listen; inside the runtime that will run the session.
    ///
    /// # Errors
    /// The handlers could not be installed.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
