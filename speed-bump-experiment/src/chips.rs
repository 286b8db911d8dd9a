//! Experiments on *chips*: short pieces of time, on a fixed grid, in each of which every undecided function
//! is delayed or not by its own coin.
//!
//! [`design`] decides what is delayed in the next chip and what follows from all chips so far. It asks for no
//! time and does no input or output: a [`Design`](design::Design) is told of chips one by one. [`regression`]
//! has the estimate, [`sequence`] the intervals that hold at any time, [`draw`] the doses and the chances.
//! [`sweep`] has one of a simulated [`world`].

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
