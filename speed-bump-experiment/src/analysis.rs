//! From what was measured to what follows: no clock, no process, no file. The same record gives the same
//! findings.
//!
//! A block holds each treatment once, in random order, and slices without delays. What a treatment does is
//! the difference between its slices and those, block by block ([`contrast`]): the time per unit that came on
//! top, and the delay per unit. Their ratio over all blocks is the sensitivity ([`estimate`]). Because the
//! *assignment* of delays is random, heavy requests, which raise calls and times together, fall on both sides
//! alike; a regression on what was delivered would take them for an effect.

pub mod contrast;
pub mod curve;
pub mod estimate;
pub mod factor;
pub(super) mod failed;
pub(super) mod faster;
pub mod findings;
pub mod further;
pub mod hinge;
pub mod interim;
pub(super) mod load;
pub(super) mod outliers;
mod pace;
pub(super) mod ranks;
mod screen_bound;
pub mod sentence;
pub mod shared;
pub(super) mod untried;
pub mod validity;
pub mod verdict;
