//! The one event loop of a session: requests, ends of processes, announcements, timers.

use std::{
    collections::BTreeMap,
    future::{pending, poll_fn},
    os::fd::{AsFd as _, OwnedFd},
    task::Poll,
    time::{Duration, Instant},
};

use aya::maps::{MapData, RingBuf};
use serde::Serialize;
use speed_bump_abi::{Event, EventKind, PythonCodeEvent, maps::EVENTS_BYTES};
use tokio::{
    io::unix::AsyncFd,
    sync::{mpsc::UnboundedReceiver, oneshot},
    time::{MissedTickBehavior, interval, sleep_until},
};

use crate::{
    launch::{
        News, Told,
        execs::{Executed, Executions},
    },
    session::Session,
    stats::report::SessionReport,
    sys::{
        record::read,
        watch::{watch_pidfd, watch_ring},
    },
    units::Pid,
};

/// How often perf maps are read: a function that is new is covered this much later.
const FOLLOW_EVERY: Duration = Duration::from_millis(10);

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The window of `--duration` closed.
    Elapsed,
    /// It was asked to.
    Stopped,
    /// Every process that was named on the command line ended.
    TargetGone,
    /// The last of them executed another program.
    TargetReplaced,
}

/// Asked of a session that goes on.
#[derive(Debug)]
pub(super) enum Request {
    /// The report so far.
    Report(oneshot::Sender<SessionReport>),
}

/// Runs the session until something ends it. `news` tells of the command, if it is of one.
///
/// # Errors
/// The event loop itself could not be set up.
pub async fn run(session: &mut Session, news: Option<News>) -> std::io::Result<Ended> {
    run_with(session, news, None).await
}

/// The same for a session that is asked for things.
pub(super) async fn run_with(
    session: &mut Session,
    mut news: Option<News>,
    mut requests: Option<UnboundedReceiver<Request>>,
) -> std::io::Result<Ended> {
    let mut events = session.engine.take_events().map(watch_ring).transpose()?;
    let mut executions = session.take_executions();
    let (ends, stop) = (session.ends(), session.stop.clone());
    let mut follow = interval(FOLLOW_EVERY);
    follow.set_missed_tick_behavior(MissedTickBehavior::Delay);

    let mut watched = Watched::default();

    let ended = loop {
        if !session.any_root_left() {
            break if session.root_was_replaced { Ended::TargetReplaced } else { Ended::TargetGone };
        }
        session.came_round();
        watched.follow(session)?;
        tokio::select! {
            () = stop.asked() => break Ended::Stopped,
            told = told(&mut news) => match told {
                Some(told) => session.told(told),
                None => session.not_followed(),
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
            request = next_request(&mut requests) => match request {
                // Whoever asked may have gone.
                Request::Report(answer) => drop(answer.send(session.report())),
            },
        }
    };
    // Calls of functions that were announced and not judged yet would be missing in the report.
    drain(&mut events, session);
    Ok(ended)
}

async fn next_request(requests: &mut Option<UnboundedReceiver<Request>>) -> Request {
    if let Some(requests) = requests
        && let Some(request) = requests.recv().await
    {
        return request;
    }
    pending().await
}

/// What becomes of the command, if the session is of one; `None`: there will be nothing more.
async fn told(news: &mut Option<News>) -> Option<Told> {
    match news {
        Some(news) if !(news.is_closed() && news.is_empty()) => news.recv().await,
        _ => pending().await,
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
