//! Requests to the event loop of a session, and waiting for the answer.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

use tokio::sync::mpsc::UnboundedSender;

use super::{doses::Setting, error::SessionError, told::ToldHelpers};
use crate::{
    stats::report::SessionReport,
    targets::{ParsedTargets, TargetChange, Targets},
};

/// A request to a running session.
#[derive(Debug)]
pub(crate) enum Request {
    /// The report so far.
    Report(Sender<SessionReport>),
    /// Turns lines of a targets file into targets. If a line gives no kind, the files that the session's
    /// processes see decide the kind.
    DecideKinds(ParsedTargets, Sender<Result<Targets, SessionError>>),
    /// Adds and removes targets. The sender sets their doses.
    ChangeTargets(TargetChange, Sender<Result<Setting, SessionError>>),
    /// Starts or stops timing calls.
    TimeCalls(bool, Sender<Result<ToldHelpers, SessionError>>),
    /// Handles the reports of helpers.
    HearHelpers(Sender<()>),
}

/// How often a waiting sender checks whether the session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits for the answer to a request; `None` if the session has ended without an answer.
pub(super) fn answer<T>(requests: &UnboundedSender<Request>, answered: &Receiver<T>) -> Option<T> {
    loop {
        match answered.recv_timeout(LOOK_EVERY) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            // If a request is sent while the channel closes, it may stay in the channel (tokio 1.54),
            // together with the sender of the answer.
            Err(RecvTimeoutError::Timeout) if requests.is_closed() => return answered.try_recv().ok(),
            Err(RecvTimeoutError::Timeout) => {}
        }
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
        // This is like a request that is sent while the session ends: it stays in the channel, and nothing
        // takes it out.
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
