//! Experiments: which functions of a service matter, by how much, and how sure that is.
//!
//! [`run`] delays functions by a [`schedule`] on a [`subject`], slice by slice, and keeps what each slice did
//! as a [`record`]. What follows from a record is worked out by [`analysis`] alone.

pub mod analysis;
pub mod groups;
pub mod guard;
mod keeper;
pub mod live;
pub mod machine;
pub mod metric;
pub mod plan;
pub mod record;
pub mod run;
mod said;
pub mod schedule;
pub mod screen;
mod shell;
pub mod simulated;
pub mod subject;
#[cfg(test)]
pub(crate) mod testing;
