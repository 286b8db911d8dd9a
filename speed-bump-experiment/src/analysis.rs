//! Computes the findings of a record, without a clock, a process or a file: the same record gives the same
//! findings.
//!
//! A [`Design`](crate::chips::design::Design) gets the chips of the record again, so its estimates and
//! verdicts are those of the running experiment. Heavy requests raise calls and times together. They fall on
//! both sides alike, because the *assignment* of delays is random; a regression on the delays that were
//! delivered in each chip would take them for an effect.

pub mod callers;
pub mod curve;
pub mod factor;
pub(super) mod failed;
pub mod findings;
pub mod further;
pub(super) mod load;
mod pace;
pub(super) mod replay;
mod scarce;
pub mod sentence;
mod steps;
pub mod thread;
pub mod validity;
pub mod verdict;
