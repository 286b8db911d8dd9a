//! The loader of speed-bump-ebpf, as a library: parse targets, resolve them to probe sites of a running
//! process, attach, delay, count, and leave without a trace.
//!
//! A target travels one way: [`targets`] parses a line, [`process`], [`elf`] and [`python`] know what the
//! process runs, [`probe`] chooses sites and attaches, [`engine`] delays, [`stats`] counts. No step calls
//! back. [`prepare`] goes this way up to the attach, and [`session`] the rest of it.

pub mod agent;
pub mod bounds;
pub mod calibrate;
pub mod capability;
mod causes;
#[cfg(feature = "cli")]
pub mod cli;
pub mod control;
pub mod doctor;
pub mod elf;
pub mod engine;
pub mod experiment;
pub mod exporter;
pub mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod inject;
pub mod kernel;
pub mod launch;
pub mod policy;
pub mod prepare;
pub mod presence;
pub mod printable;
pub mod probe;
pub mod process;
pub mod python;
pub mod report;
pub mod sampling;
pub mod session;
pub mod stats;
pub mod sys;
pub mod targets;
pub mod units;
mod whole_file;
