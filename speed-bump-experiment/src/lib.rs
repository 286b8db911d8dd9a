//! Experiments: which functions of a service matter, by how much, and how sure that is. Needs no Linux.
//!
//! [`run`] delays functions by a [`schedule`] on a [`subject`], slice by slice, and keeps what each slice did
//! as a [`record`]. What follows from a record is worked out by [`analysis`] alone, and shown by [`report`].

#![forbid(unsafe_code)]

pub mod analysis;
pub mod bound;
pub mod groups;
pub mod latencies;
pub mod plan;
pub mod reading;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod screen;
pub mod simulated;
pub mod subject;
#[cfg(test)]
mod testing;

use speed_bump_names::{TargetKind, demangle, printable};
use speed_bump_units::units;
