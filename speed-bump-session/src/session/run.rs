//! The event loop of every session. The loop waits for requests, for the end of the window, and for events of
//! the engine.

use std::{future::pending, io, time::Instant};

use tokio::{sync::mpsc::UnboundedReceiver, time::sleep_until};

pub use super::ended::Ended;
use super::{interface::Session, requests::Request};

/// Runs the session until something ends it.
///
/// # Errors
/// We could not set up the event loop.
pub(crate) async fn run<S: Session>(session: &mut S) -> io::Result<Ended> {
    session.listen()?;
    let mut requests = session.state_mut().take_requests();
    let (closes, stop) = (session.state().closes(), session.state().stop.clone());
    let ended = loop {
        tokio::select! {
            () = stop.asked() => break Ended::Stopped,
            () = until(closes) => break Ended::Elapsed,
            request = next_request(&mut requests) => match request {
                // If the requester no longer waits, we drop the answer.
                Request::Report(answer) => drop(answer.send(session.report())),
                Request::DecideKinds(parsed, answer) => {
                    drop(answer.send(session.decide_kinds(parsed)));
                }
                Request::ChangeTargets(change, answer) => {
                    drop(answer.send(session.change_targets(&change)));
                }
                Request::TimeCalls(on, answer) => drop(answer.send(session.time_calls(on))),
                Request::HearHelpers(answer) => {
                    session.hear_helpers();
                    let _ = answer.send(());
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

/// Waits until this time, or for ever if there is none.
pub(super) async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end.into()).await,
        None => pending().await,
    }
}
