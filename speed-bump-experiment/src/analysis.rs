//! From what was measured to what follows: no clock, no process, no file. The same record gives the same
//! findings.
//!
//! The chips of a record are given to a [`Design`](crate::chips::design::Design) again: its
//! estimates and verdicts are those of the experiment under way. Because the *assignment* of delays is
//! random, heavy requests, which raise calls and times together, fall on both sides alike; a regression on
//! what was delivered in each chip would take them for an effect.

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
pub mod thread;
pub mod validity;
pub mod verdict;
