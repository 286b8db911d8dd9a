//! Experiments on *chips*: short slices of time, one after the other. In each of them, a coin per undecided
//! function decides whether that function is delayed.
//!
//! [`design`] decides which functions are delayed in the next chip, and gives the verdicts so far. It reads
//! no clock and does no input or output: chips are added to a [`Design`](design::Design) one by one.
//! [`regression`] estimates sensitivities. [`sequence`] has the intervals that hold at any time. [`draw`]
//! gives each function a dose, and a chance to get it. [`sweep`] runs a design on a simulated [`world`].

pub mod baseline;
pub mod carry_over;
pub mod design;
pub mod draw;
pub mod forecast;
pub mod influence;
pub mod regression;
pub mod sequence;
pub mod sweep;
mod verdict;
pub mod world;
