//! The one event loop of a session: requests, its window, and what its engine has it wait for.

use std::{
    fmt,
    future::pending,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::sleep_until,
};

use super::{Session, SessionError, doses::Setting};
use crate::{stats::report::SessionReport, targets::TargetChange};

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

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elapsed => "the window closed",
            Self::Stopped => "it was stopped",
            Self::TargetGone => "the target ended",
            Self::TargetReplaced => "the target executed another program",
        })
    }
}

/// Asked of a session that goes on.
#[derive(Debug)]
pub(crate) enum Request {
    /// The report so far.
    Report(Sender<SessionReport>),
    /// Targets that come and go. Whoever asks sets their doses.
    ChangeTargets(TargetChange, Sender<Result<Setting, SessionError>>),
}

/// How often who waits for an answer looks whether anybody is left to give it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits for the answer to a request; `None` where the session has ended without one.
pub(super) fn answer<T>(requests: &UnboundedSender<Request>, answered: &Receiver<T>) -> Option<T> {
    loop {
        match answered.recv_timeout(LOOK_EVERY) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            // A request that is sent while the channel closes may stay in it (tokio 1.54), and what is to
            // answer it with it.
            Err(RecvTimeoutError::Timeout) if requests.is_closed() => return answered.try_recv().ok(),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Runs the session until something ends it.
///
/// # Errors
/// The event loop itself could not be set up.
pub(crate) async fn run<S: Session>(session: &mut S) -> io::Result<Ended> {
    session.listen()?;
    let mut requests = session.state_mut().take_requests();
    let (closes, stop) = (session.state().closes(), session.state().stop.clone());
    let ended = loop {
        tokio::select! {
            () = stop.asked() => break Ended::Stopped,
            () = until(closes) => break Ended::Elapsed,
            request = next_request(&mut requests) => match request {
                // Whoever asked may have gone.
                Request::Report(answer) => drop(answer.send(session.report())),
                Request::ChangeTargets(change, answer) => {
                    drop(answer.send(session.change_targets(&change)));
                }
            },
            ended = session.turn() => {
                if let Some(ended) = ended? {
                    break ended;
                }
            }
        }
    };
    session.catch_up();
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

/// Waits for that moment, for ever without one.
pub(super) async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::channel;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn nobody_waits_for_an_answer_that_nobody_gives() {
        let (requests, mut asked) = unbounded_channel();
        let (answer_to, answered) = channel();
        requests.send(Request::Report(answer_to)).unwrap();
        // As a request that was sent while the session ended: it is in there, and nobody takes it out.
        asked.close();
        assert!(answer(&requests, &answered).is_none());
    }

    #[test]
    fn an_answer_is_waited_for_and_none_is_lost_at_the_end() {
        let (requests, asked) = unbounded_channel();
        let (answer_to, answered) = channel();
        let late = std::thread::spawn(move || {
            std::thread::sleep(2 * LOOK_EVERY);
            answer_to.send(7).unwrap();
            drop(asked);
        });
        assert_eq!(answer(&requests, &answered), Some(7));
        late.join().unwrap();
        assert_eq!(answer(&requests, &answered), None);
    }
}
