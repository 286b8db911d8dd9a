//! Experiments: which functions of a service matter, by how much, and how sure that is. This crate does not
//! need Linux.
//!
//! [`run`] delays functions of a [`subject`] in short [`chips`] of time, and keeps what each one did as a
//! [`record`]. [`analysis`] computes the findings from a record, and [`report`] shows them.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod bound;
pub mod chips;
pub mod groups;
pub mod latencies;
mod outliers;
pub mod plan;
pub mod reading;
pub mod record;
pub mod report;
pub mod run;
pub mod simulated;
pub mod subject;
#[cfg(test)]
mod testing;

use speed_bump_names::{TargetKind, demangle, printable};
use speed_bump_units::units;
